// SPDX-License-Identifier: Apache-2.0
/*
 * Turns the capabilities of this process into the names of those that are missing.
 */
#include "privileges.h"

#include <linux/capability.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static const struct {
	int number;
	const char *name;
} needed[] = {
	{CAP_BPF, "CAP_BPF"}, /* load programs, make maps */
	{CAP_PERFMON, "CAP_PERFMON"}, /* programs that read kernel memory, tracepoints */
};

static uint64_t effective(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct words[_LINUX_CAPABILITY_U32S_3] = {};
	if (syscall(SYS_capget, &header, words))
		return 0;
	return (uint64_t)words[1].effective << 32 | words[0].effective;
}

bool privileges_reach_modules(void)
{
	return effective() >> CAP_SYS_ADMIN & 1;
}

bool privileges_missing(char *names, size_t room)
{
	uint64_t have = effective();
	names[0] = '\0';
	/* It contains both, as before Linux 5.8. */
	if (privileges_reach_modules())
		return false;
	for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++) {
		size_t used = strlen(names);
		if (!(have >> needed[i].number & 1))
			snprintf(names + used, room - used, "%s%s", used ? ", " : "", needed[i].name);
	}
	return names[0];
}

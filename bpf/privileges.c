// SPDX-License-Identifier: Apache-2.0
/*
 * Turns the capabilities of this process into the names of those that are missing, and into what is lost without them.
 */
#include "privileges.h"

#include <linux/capability.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static const struct {
	int number;
	const char *name;
	const char *loss; /* without it */
	bool required;
} useful[] = {
	/* Load programs, make maps. */
	{CAP_BPF, "CAP_BPF", "nothing can be recorded", true},
	/* Programs that read kernel memory, tracepoints. */
	{CAP_PERFMON, "CAP_PERFMON", "nothing can be recorded", true},
	/* The kernel tells which pages are cached only to who owns a file or may write to it (residency.c). */
	{CAP_FOWNER, "CAP_FOWNER", "which parts of other users' files were cached is not recorded, only how much",
	 false},
	{CAP_DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH",
	 "which parts of files that you may not read were cached is not recorded, only how much", false},
	/* /proc/PID/root. */
	{CAP_SYS_PTRACE, "CAP_SYS_PTRACE",
	 "which parts of files in other users' containers were cached is not recorded, only how much", false},
};

enum { USEFUL = sizeof(useful) / sizeof(useful[0]) };

#define PID_NAMESPACE_INITIAL 0xeffffffcu /* PROC_PID_INIT_INO (include/linux/proc_ns.h) */

static uint64_t effective(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct words[_LINUX_CAPABILITY_U32S_3] = {};
	if (syscall(SYS_capget, &header, words))
		return 0;
	return (uint64_t)words[1].effective << 32 | words[0].effective;
}

static bool has(uint64_t have, int i)
{
	/* CAP_SYS_ADMIN contains what is required, as before Linux 5.8. */
	return have >> useful[i].number & 1 || (useful[i].required && have >> CAP_SYS_ADMIN & 1);
}

bool privileges_reach_modules(void)
{
	return effective() >> CAP_SYS_ADMIN & 1;
}

bool privileges_in_pid_namespace(void)
{
	struct stat namespace;
	return !stat("/proc/self/ns/pid", &namespace) && namespace.st_ino != PID_NAMESPACE_INITIAL;
}

bool privileges_missing(char *names, size_t room)
{
	uint64_t have = effective();
	names[0] = '\0';
	for (int i = 0; i < USEFUL; i++) {
		size_t used = strlen(names);
		if (useful[i].required && !has(have, i))
			snprintf(names + used, room - used, "%s%s", used ? ", " : "", useful[i].name);
	}
	return names[0];
}

void privileges_put(FILE *json)
{
	uint64_t have = effective();
	for (int i = 0; i < USEFUL; i++)
		fprintf(json, "%s{\"name\":\"%s\",\"has\":%s,\"required\":%s,\"loss\":\"%s\"}", i ? "," : "",
			useful[i].name, has(have, i) ? "true" : "false", useful[i].required ? "true" : "false",
			useful[i].loss);
}

// SPDX-License-Identifier: Apache-2.0
/*
 * Preloaded into the recorder: a kernel that refuses the BPF program that the environment variable REFUSED_PROGRAM names,
 * with the words of a verifier.
 */
#include <dlfcn.h>
#include <errno.h>
#include <linux/bpf.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

long syscall(long number, ...)
{
	static long (*next)(long number, ...);
	long words[6];
	va_list arguments;
	va_start(arguments, number);
	for (int i = 0; i < 6; i++)
		words[i] = va_arg(arguments, long);
	va_end(arguments);
	const char *refused = getenv("REFUSED_PROGRAM");
	if (refused && number == SYS_bpf && words[0] == BPF_PROG_LOAD) {
		const union bpf_attr *attributes = (const void *)words[1];
		/* The kernel is told the beginning of the name. */
		if (!strncmp(attributes->prog_name, refused, BPF_OBJ_NAME_LEN - 1)) {
			if (attributes->log_level)
				snprintf((char *)attributes->log_buf, attributes->log_size,
					 "0: (85) call bpf_other#9999\nunknown func bpf_other#9999\n"
					 "processed 1 insns (limit 1000000)\n");
			errno = EACCES;
			return -1;
		}
	}
	if (!next)
		next = dlsym(RTLD_NEXT, "syscall");
	return next(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}

// SPDX-License-Identifier: Apache-2.0
/*
 * Turns system calls that do nothing into how long a system call takes at least: before and after the programs are attached,
 * what they and the way to them cost every call on the machine.
 */
#include "call_time.h"

#include <sys/syscall.h>
#include <unistd.h>

#include "clock.h"

enum { ROUNDS = 20, CALLS = 250 /* of each; all together some 2 ms */ };

uint64_t call_time_ns(void)
{
	uint64_t least_ns = UINT64_MAX;

	/* The least of them: whatever came between took time as well. */
	for (int round = 0; round < ROUNDS; round++) {
		uint64_t begun_ns = monotonic_ns();
		for (int call = 0; call < CALLS; call++)
			syscall(SYS_read, -1, NULL, 0);
		uint64_t taken_ns = monotonic_ns() - begun_ns;
		least_ns = taken_ns < least_ns ? taken_ns : least_ns;
	}
	return least_ns / CALLS;
}

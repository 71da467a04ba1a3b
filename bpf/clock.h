/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FLEXTRACE_CLOCK_H
#define FLEXTRACE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_ns(clockid_t clock)
{
	struct timespec now;
	clock_gettime(clock, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

/* The clock of all records. */
static inline uint64_t monotonic_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

#endif /* FLEXTRACE_CLOCK_H */

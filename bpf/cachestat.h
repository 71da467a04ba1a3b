/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many pages of a range of a file are in the page cache, in one call (Linux 6.5). The names of
 * include/uapi/linux/mman.h are not yet in the headers of all distributions.
 */
#ifndef FLEXTRACE_CACHESTAT_H
#define FLEXTRACE_CACHESTAT_H

#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_cachestat
#define SYS_cachestat 451 /* the same on all architectures */
#endif

/* -1 if the kernel cannot say so. */
static inline int64_t cachestat_count(int descriptor, uint64_t offset, uint64_t bytes)
{
	struct {
		uint64_t offset, bytes;
	} range = {offset, bytes};
	struct {
		uint64_t cached, dirty, writeback, evicted, recently_evicted;
	} counts;

	return syscall(SYS_cachestat, descriptor, &range, &counts, 0) ? -1 : (int64_t)counts.cached;
}

#endif /* FLEXTRACE_CACHESTAT_H */

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns starts and ends of operations of many threads into the time with at least one in flight.
 *
 * A thread that makes the number in flight leave 0 subtracts its start from the total, one that makes it 0 adds its
 * end. The order of these additions does not matter, so that no lock is needed. Exactness: the clock is read outside
 * of the counting, so that each transition is off by the time between the two, some 10 ns, or longer when the thread loses its
 * processor just there. With one thread (shared = false) it is the sum of the durations and exact.
 */
#ifndef FLEXTRACE_BUSY_TIME_H
#define FLEXTRACE_BUSY_TIME_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct busy_time {
	_Alignas(64) _Atomic uint32_t in_flight;
	_Atomic uint64_t total_ns; /* modulo 2^64 while something is in flight */
	bool shared;
};

/* Returns whether nothing was in flight; then busy_started() has to follow. */
static inline bool busy_enter(struct busy_time *busy)
{
	return busy->shared && atomic_fetch_add_explicit(&busy->in_flight, 1, memory_order_relaxed) == 0;
}

static inline void busy_started(struct busy_time *busy, uint64_t start_ns)
{
	atomic_fetch_sub_explicit(&busy->total_ns, start_ns, memory_order_relaxed);
}

static inline void busy_leave(struct busy_time *busy, uint64_t start_ns, uint64_t end_ns)
{
	if (!busy->shared)
		atomic_store_explicit(&busy->total_ns,
				      atomic_load_explicit(&busy->total_ns, memory_order_relaxed) + end_ns - start_ns,
				      memory_order_relaxed);
	else if (atomic_fetch_sub_explicit(&busy->in_flight, 1, memory_order_relaxed) == 1)
		atomic_fetch_add_explicit(&busy->total_ns, end_ns, memory_order_relaxed);
}

#endif

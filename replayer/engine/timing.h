/* SPDX-License-Identifier: Apache-2.0 */
/* Turns a due time into waiting until it: sleep until shortly before, then spin. */
#ifndef FLEXTRACE_TIMING_H
#define FLEXTRACE_TIMING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "bpf/clock.h"

enum timing { TIMING_ASAP, TIMING_THINK, TIMING_RECORDED };

enum { SLICE_NS = 50 * 1000 * 1000 }; /* of a wait that a stop ends: how long that may go unseen */

struct pacer {
	uint64_t wake_up_ns; /* how late wake-ups were at worst when the run began */
	atomic_uint_fast64_t margin_ns; /* how long before the due time to wake up and spin; 0 = nobody spins */
	atomic_int spinners;
	int spinners_max; /* more would take the processors that the operations need, or wait for each other's looks */
	bool crowded; /* did all spin, no processor would be left: who does lets those go first that wake up on its own */
	bool exact; /* times are kept for their own sake; think times only need a processor as awake as the original's was */
	int processors;
	uint64_t lost_ns; /* between two looks at the clock: who computes did not have its processor */
	uint64_t slice_ns; /* as SLICE_NS; longer where so many threads look for a stop that it would be work */
	uint64_t burst_ns; /* for how long who computes in a think time does so at a time, in the mean; 0 = not known */
	atomic_int awake; /* threads of the replay that do not sleep until a time or until another one has got on */
	const atomic_bool *stop;
};

static inline uint64_t now_ns(void)
{
	return monotonic_ns();
}

/* Or a signal. */
static inline void sleep_until(uint64_t due_ns)
{
	struct timespec due = {(time_t)(due_ns / 1000000000u), (long)(due_ns % 1000000000u)};

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL);
}

#define WAIT_NS_MAX 1e18 /* longer than 30 years is damage; it then waits until somebody stops it */

/* Of what a factor may have made longer than any counter. */
static inline uint64_t bounded_ns(double wait_ns)
{
	return (uint64_t)(wait_ns < WAIT_NS_MAX ? wait_ns : WAIT_NS_MAX);
}

static inline void pause_processor(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/*
 * Measures how late wake-ups are here, for a first margin. Takes some 10 ms. `threads` are going to be awake, and have
 * `processors_max` at most; 0 = all on which they may run.
 */
void pacer_init(struct pacer *pacer, enum timing timing, uint32_t threads, uint32_t processors_max,
		const atomic_bool *stop);

/* A thread goes to sleep for another one, or ends; and it goes on. */
static inline void pacer_asleep(struct pacer *pacer)
{
	atomic_fetch_sub_explicit(&pacer->awake, 1, memory_order_relaxed);
}

static inline void pacer_awake(struct pacer *pacer)
{
	atomic_fetch_add_explicit(&pacer->awake, 1, memory_order_relaxed);
}

/* Whether who spins takes the processor of nobody that it may wait for: all that are awake have one. */
static inline bool pacer_has_room(const struct pacer *pacer)
{
	return pacer->processors > 1 && atomic_load_explicit(&pacer->awake, memory_order_relaxed) <= pacer->processors;
}

/* Reserves the right to spin; false when as many threads as may do. */
bool pacer_may_spin(struct pacer *pacer);
void pacer_spun(struct pacer *pacer);

/* Between two looks of who spins. */
void pacer_pause(const struct pacer *pacer);

/* Returns at due_ns (CLOCK_MONOTONIC) or soon after a stop was asked for. */
void pacer_wait_until(struct pacer *pacer, uint64_t due_ns);

/*
 * The same, for a thread that has a processor for compute_ns of the time: it computes, sleeps, and computes, as one that has
 * been waiting goes on with what it has got, and then prepares what it asks for. Where it is known for how long at a time,
 * it does so as often as that takes. It lets nobody go first. It computes by processor time, where there is time to sleep as
 * well, and may so be late: what it waits for a processor it sleeps less, now or before the next operation.
 */
void pacer_compute_until(struct pacer *pacer, uint64_t due_ns, uint64_t compute_ns);

#endif

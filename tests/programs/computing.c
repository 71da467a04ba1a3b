// SPDX-License-Identifier: Apache-2.0
/*
 * Lets a thread of the engine compute and sleep on a clock of this program's: a look at it takes LOOK_NS, and after each
 * TURN_NS of processor time somebody else has the processor for LOST_NS. Writes how long the thread had it, how often it
 * slept and how much time passed, in nanoseconds.
 *
 *	computing think LOST_NS BURST_NS COMPUTE_NS THINK_NS	one think time
 *	computing others LOST_NS BURST_NS PROCESSORS		a second of what keeps up to one processor busy
 */
#include <err.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "replayer/engine/others.h"
#include "replayer/engine/timing.h"

enum {
	SECOND_NS = 1000 * 1000 * 1000,
	TURN_NS = 1000 * 1000,
	LOOK_NS = 100,
};

static struct others others;
static uint64_t lost_ns, had_ns, passed_ns, sleeps;

/* In place of the C library's. One thread at a time asks. */
int clock_gettime(clockid_t clock, struct timespec *now)
{
	had_ns += LOOK_NS;
	passed_ns += LOOK_NS + (had_ns % TURN_NS ? 0 : lost_ns);
	if (passed_ns >= SECOND_NS)
		atomic_store(&others.stop, true);
	uint64_t ns = clock == CLOCK_THREAD_CPUTIME_ID ? had_ns : passed_ns;
	*now = (struct timespec){(time_t)(ns / SECOND_NS), (long)(ns % SECOND_NS)};
	return 0;
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *due, struct timespec *rest)
{
	uint64_t due_ns = (uint64_t)due->tv_sec * SECOND_NS + (uint64_t)due->tv_nsec;

	if (clock != CLOCK_MONOTONIC || flags != TIMER_ABSTIME)
		return EINVAL;
	sleeps++;
	if (due_ns > passed_ns)
		passed_ns = due_ns;
	return 0;
}

static void think(uint64_t burst_ns, uint64_t compute_ns, uint64_t think_ns)
{
	static const atomic_bool never;
	struct pacer pacer;

	pacer_init(&pacer, TIMING_THINK, 1, 0, &never);
	pacer.burst_ns = burst_ns;
	had_ns = passed_ns = sleeps = 0;
	pacer_compute_until(&pacer, think_ns, compute_ns);
}

static void keep_busy(uint64_t burst_ns, double processors)
{
	int error = others_init(&others, processors, burst_ns);

	if (error)
		errx(1, "%s", strerror(-error));
	while (!atomic_load(&others.stop))
		sched_yield();
	others_deinit(&others);
}

int main(int argc, char **argv)
{
	if (argc < 5)
		return 2;
	lost_ns = strtoull(argv[2], NULL, 10);
	uint64_t burst_ns = strtoull(argv[3], NULL, 10);
	if (!strcmp(argv[1], "think") && argc == 6)
		think(burst_ns, strtoull(argv[4], NULL, 10), strtoull(argv[5], NULL, 10));
	else if (!strcmp(argv[1], "others") && argc == 5)
		keep_busy(burst_ns, atof(argv[4]));
	else
		return 2;
	printf("%llu %llu %llu\n", (unsigned long long)had_ns, (unsigned long long)sleeps,
	       (unsigned long long)passed_ns);
	return 0;
}

// SPDX-License-Identifier: Apache-2.0
// Turns a number of processors into threads that keep them busy for that share of the time, in bursts.
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/prctl.h>

#include "replayer/engine/others.h"
#include "replayer/engine/timing.h"

enum {
	STACK_BYTES = 64 << 10,
	BEHIND_BURSTS_MAX = 20, /* who got no processor for longer makes up for no more than that */
};

static uint64_t thread_ns(void)
{
	return clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

/* In processor time: the recording has counted that, and not the waiting for a processor. */
static void compute(const struct others *others, uint64_t burst_ns)
{
	uint64_t until_ns = thread_ns() + burst_ns;

	while (thread_ns() < until_ns && !atomic_load_explicit(&others->stop, memory_order_relaxed))
		pause_processor();
}

static void rest_until(const struct others *others, uint64_t until_ns)
{
	for (uint64_t now; (now = now_ns()) < until_ns && !atomic_load_explicit(&others->stop, memory_order_relaxed);)
		sleep_until(until_ns - now > SLICE_NS ? now + SLICE_NS : until_ns);
}

/* Bursts of half to one and a half times the mean, so that threads do not fall into step. */
static void *work(void *argument)
{
	struct others *others = argument;
	double share = others->processors / others->count;
	uint64_t behind_max_ns = BEHIND_BURSTS_MAX * others->burst_ns;
	unsigned int seed = (unsigned int)(uintptr_t)&share;
	uint64_t begin_ns = now_ns();

	prctl(PR_SET_NAME, "others");
	/*
	 * Who wakes up in a batch takes the processor of nobody. The programs that these stand for mostly wake up when one of
	 * the replayed threads hands over to them and goes to sleep, not in the middle of its calls.
	 */
	pthread_setschedparam(pthread_self(), SCHED_BATCH, &(struct sched_param){0});
	while (!atomic_load_explicit(&others->stop, memory_order_relaxed)) {
		uint64_t burst_ns =
			others->burst_ns / 2 + (uint64_t)((double)others->burst_ns * rand_r(&seed) / RAND_MAX);

		compute(others, burst_ns);
		/* By all that it had, also to go to sleep and back. */
		uint64_t next_ns = begin_ns + (uint64_t)((double)thread_ns() / share), now = now_ns();
		if (now > next_ns + behind_max_ns)
			begin_ns += now - next_ns - behind_max_ns;
		rest_until(others, next_ns);
	}
	return NULL;
}

int others_init(struct others *others, double processors, uint64_t burst_ns)
{
	uint32_t wanted = (uint32_t)ceil(processors);
	pthread_attr_t attributes;

	others->processors = processors;
	others->burst_ns = burst_ns;
	others->count = wanted;
	atomic_store(&others->stop, false);
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, STACK_BYTES);
	int error = 0;
	for (uint32_t started = 0; started < wanted; started++) {
		error = pthread_create(&others->threads[started], &attributes, work, others);
		if (error) {
			others->count = started;
			others_deinit(others);
			break;
		}
	}
	pthread_attr_destroy(&attributes);
	return -error;
}

void others_deinit(struct others *others)
{
	atomic_store(&others->stop, true);
	for (uint32_t i = 0; i < others->count; i++)
		pthread_join(others->threads[i], NULL);
	others->count = 0;
}

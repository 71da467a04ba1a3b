// SPDX-License-Identifier: Apache-2.0
// Turns a trace into the segments of a schedule, each as soon as there is memory for it.
#include <string.h>
#include <sys/prctl.h>

#include "replayer/engine/feed.h"
#include "replayer/engine/futex.h"
#include "replayer/engine/message.h"

/* Waits until all threads have completed what is in a place; false after a stop. */
static bool wait_vacant(struct segment *segment, const atomic_bool *stop)
{
	for (uint32_t left; (left = atomic_load(&segment->threads_left));) {
		if (atomic_load_explicit(stop, memory_order_relaxed))
			return false;
		futex_sleep(&segment->threads_left, left, SLICE_NS);
	}
	return true;
}

static bool build_next(struct feed *feed)
{
	struct schedule *schedule = feed->builder.schedule;
	uint32_t number = feed->builder.number;

	if (!wait_vacant(&schedule->kept[number % SEGMENTS], schedule->stop))
		return false;
	if (schedule->order && number >= SEGMENTS)
		order_recycle(schedule->order, (uint64_t)(number - SEGMENTS + 1) * SEGMENT_OPERATIONS);
	if (!segment_build(&feed->builder))
		return false;
	atomic_store(&schedule->built, feed->builder.number);
	futex_wake(&schedule->built, FUTEX_ALL);
	return true;
}

int feed_init(struct feed *feed, struct schedule *schedule, bool loop)
{
	*feed = (struct feed){.loop = loop};
	int error = segment_builder_init(&feed->builder, schedule);

	/* Where a stop was asked for before the first operation, there is no segment, and none is needed. */
	if (!error)
		build_next(feed);
	if (!schedule->streams)
		segment_builder_free(&feed->builder);
	return error;
}

static void *feed_on(void *argument)
{
	struct feed *feed = argument;

	prctl(PR_SET_NAME, "feed");
	while ((feed->loop || feed->builder.number < feed->builder.schedule->segments) && build_next(feed))
		;
	return NULL;
}

int feed_start(struct feed *feed)
{
	if (!feed->builder.schedule)
		return 0;
	int error = pthread_create(&feed->thread, NULL, feed_on, feed);
	if (error)
		complain(
			"cannot start the thread that reads the trace: %s; raise the limit of processes (ulimit -u, or pids.max of the control group)",
			strerror(error));
	feed->running = !error;
	return -error;
}

bool feed_join(struct feed *feed, unsigned int seconds)
{
	struct timespec limit;

	clock_gettime(CLOCK_MONOTONIC, &limit);
	limit.tv_sec += seconds;
	if (feed->running && pthread_clockjoin_np(feed->thread, NULL, CLOCK_MONOTONIC, &limit))
		return false;
	feed->running = false;
	return true;
}

void feed_free(struct feed *feed)
{
	segment_builder_free(&feed->builder);
}

// SPDX-License-Identifier: Apache-2.0
/*
 * Walks a schedule of very small segments (Makefile) as the threads of a replay would, by one thread and at random: takes
 * operations, several at once in each recorded thread, and completes those that the interval order lets start. Tells
 * what it does in lines "take|may|complete ID PASS" (io_record.id), "may" when an operation that was taken may start.
 *
 *	segments TRACE recorded|thread PASSES DEPTH SEED
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "replayer/engine/feed.h"

enum { DEPTH_MAX = 8, THREADS_MAX = 64 };

#define IDLE_NS_MAX (30 * 1000000000ull)

struct held {
	const struct operation *operation;
	bool may_start;
};

struct thread {
	struct cursor cursor;
	struct held held[DEPTH_MAX];
	int count;
	bool ended;
};

static struct order order;
static struct schedule schedule;
static struct thread threads[THREADS_MAX];
static atomic_bool stop;
static int pass;

static void tell(const char *what, const struct operation *operation)
{
	printf("%s %llu %d\n", what, (unsigned long long)operation->record->io.id, pass);
}

static void tell_what_may_start(void)
{
	uint64_t frontier = atomic_load(&order.frontier);

	for (uint32_t t = 0; t < schedule.thread_count; t++) {
		for (int i = 0; i < threads[t].count; i++) {
			struct held *held = &threads[t].held[i];

			if (held->may_start || (schedule.order && frontier < held->operation->wait_for))
				continue;
			held->may_start = true;
			tell("may", held->operation);
		}
	}
}

static bool take(struct thread *thread, int depth)
{
	if (thread->count == depth || thread->ended || cursor_must_wait(&thread->cursor))
		return false;
	const struct operation *operation = cursor_next(&thread->cursor);
	thread->ended = !operation;
	if (thread->ended)
		return true;
	cursor_back(&thread->cursor);
	if (cursor_must_wait(&thread->cursor) || cursor_next(&thread->cursor) != operation) {
		puts("another operation after cursor_back()");
		exit(1);
	}
	thread->held[thread->count++] = (struct held){.operation = operation};
	tell("take", operation);
	tell_what_may_start();
	return true;
}

static bool complete(struct thread *thread, int which)
{
	if (which >= thread->count || !thread->held[which].may_start)
		return false;
	const struct operation *operation = thread->held[which].operation;
	thread->held[which] = thread->held[--thread->count];
	tell("complete", operation);
	cursor_complete(&thread->cursor, operation);
	tell_what_may_start();
	return true;
}

static bool all_ended(void)
{
	for (uint32_t t = 0; t < schedule.thread_count; t++) {
		if (!threads[t].ended || threads[t].count)
			return false;
	}
	return true;
}

static void run_pass(int depth)
{
	/* For a while one thread is left behind, so that the others run into the end of what is in memory. */
	uint32_t slow = 0;
	uint64_t moved_ns = now_ns();

	for (uint32_t t = 0; t < schedule.thread_count; t++) {
		cursor_start_pass(&threads[t].cursor);
		threads[t].ended = false;
	}
	while (!all_ended()) {
		uint32_t t = (uint32_t)rand() % schedule.thread_count;

		if (rand() % 512 == 0)
			slow = (uint32_t)rand() % schedule.thread_count;
		if (t == slow && rand() % 256 != 0)
			continue;
		bool moved = rand() % 2 ? take(&threads[t], depth) : complete(&threads[t], rand() % depth);
		if (moved) {
			moved_ns = now_ns();
		} else if (now_ns() - moved_ns > IDLE_NS_MAX) {
			puts("nothing can go on");
			exit(1);
		}
	}
}

int main(int count, char **values)
{
	struct trace trace;
	struct feed feed;

	if (count != 6)
		return 2;
	int passes = atoi(values[3]), depth = atoi(values[4]);
	srand((unsigned int)atoi(values[5]));
	if (depth > DEPTH_MAX || trace_open(&trace, values[1]) || schedule_survey_init(&schedule, &trace))
		return 1;
	for (uint64_t first = 0; first < trace.count; first += TRACE_BLOCK_RECORDS) {
		uint64_t left = trace.count - first;

		if (schedule_survey(&schedule, first, left < TRACE_BLOCK_RECORDS ? left : TRACE_BLOCK_RECORDS))
			return 1;
	}
	bool recorded = !strcmp(values[2], "recorded");
	if (schedule.thread_count > THREADS_MAX || schedule_init(&schedule, recorded ? &order : NULL, &stop) ||
	    order_init(&order, schedule.places, 2 * schedule.places, THREADS_MAX, NULL) ||
	    feed_init(&feed, &schedule, passes > 1) || feed_start(&feed))
		return 1;
	for (uint32_t t = 0; t < schedule.thread_count; t++)
		threads[t].cursor = schedule_cursor(&schedule, t);
	for (pass = 0; pass < passes; pass++) {
		if (recorded && !schedule.streams)
			order_reset(&order);
		run_pass(depth);
	}
	atomic_store(&stop, true);
	feed_join(&feed);
	feed_free(&feed);
	order_destroy(&order);
	schedule_free(&schedule);
	trace_close(&trace);
	return 0;
}

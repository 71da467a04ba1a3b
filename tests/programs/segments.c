// SPDX-License-Identifier: Apache-2.0
/*
 * Walks a schedule of very small segments (Makefile) as the threads of a replay would, by one thread and at random: takes
 * operations, several at once in each recorded thread, and completes those that the order lets start. Tells
 * what it does in lines "take|may|complete ID PASS" (io_record.id), "may" when an operation that was taken may start.
 *
 *	segments TRACE resource|recorded|thread PASSES DEPTH SEED
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "replayer/engine/feed.h"

enum { DEPTH_MAX = 8, THREADS_MAX = 64, JOIN_SECONDS_MAX = 60 };

#define IDLE_NS_MAX (30 * 1000000000ull)

struct held {
	const struct operation *operation;
	uint64_t number; /* in its thread */
	bool may_start;
};

struct thread {
	struct cursor cursor;
	struct held held[DEPTH_MAX];
	int count;
	uint64_t taken;
	bool ended;
};

static struct order order;
static struct schedule schedule;
static struct file_table table;
static struct thread threads[THREADS_MAX];
static atomic_bool stop;
static int pass;

static void tell(const char *what, const struct operation *operation)
{
	printf("%s %llu %d\n", what, (unsigned long long)operation->record->io.id, pass);
}

/* By resource, the order within a thread is the engine's to keep (engine_uring.c, is_blocked and take_turn). */
static bool is_held_by_own(const struct thread *thread, const struct held *held)
{
	uint64_t start_ns = held->operation->record->io.start_ns;

	for (int i = 0; schedule.by_files && i < thread->count; i++) {
		const union record *own = thread->held[i].operation->record;
		uint64_t end_ns = record_end_ns(own);

		if (end_ns < start_ns || (end_ns == start_ns && own->io.duration_ns))
			return true;
		if (thread->held[i].number < held->number && !thread->held[i].may_start)
			return true;
	}
	return false;
}

static void tell_what_may_start(void)
{
	for (uint32_t t = 0; t < schedule.thread_count; t++) {
		/* They stand in the order in which they were taken: one may go ahead of the next. */
		for (int i = 0; i < threads[t].count; i++) {
			struct held *held = &threads[t].held[i];
			uint64_t place;

			if (held->may_start || is_held_by_own(&threads[t], held) ||
			    operation_is_held(&schedule, held->operation, &place))
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
	thread->held[thread->count++] = (struct held){operation, thread->taken++, false};
	tell("take", operation);
	tell_what_may_start();
	return true;
}

static bool complete(struct thread *thread, int which)
{
	if (which >= thread->count || !thread->held[which].may_start)
		return false;
	const struct operation *operation = thread->held[which].operation;
	memmove(&thread->held[which], &thread->held[which + 1],
		(size_t)(--thread->count - which) * sizeof(*thread->held));
	tell("complete", operation);
	cursor_complete(&thread->cursor, operation, 0, 0);
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

static int survey(const struct trace *trace)
{
	__attribute__((cleanup(files_survey_free))) struct files_survey *files = NULL;

	if (schedule_survey_init(&schedule, trace) ||
	    files_survey_init(&files, trace, (struct class_choice){0}, &(struct file_ranges){0}))
		return 1;
	for (uint64_t first = 0; first < trace->count; first += TRACE_BLOCK_RECORDS) {
		uint64_t left = trace->count - first;
		uint64_t count = left < TRACE_BLOCK_RECORDS ? left : TRACE_BLOCK_RECORDS;

		if (files_survey(files, first, count) || schedule_survey(&schedule, first, count))
			return 1;
	}
	return files_survey_end(files, &table);
}

int main(int count, char **values)
{
	struct trace trace;
	struct feed feed;

	if (count != 6)
		return 2;
	bool by_thread = !strcmp(values[2], "thread"), by_resource = !strcmp(values[2], "resource");
	int passes = atoi(values[3]), depth = atoi(values[4]);
	srand((unsigned int)atoi(values[5]));
	if (depth > DEPTH_MAX || trace_open(&trace, values[1], &stop) || survey(&trace) ||
	    schedule.thread_count > THREADS_MAX)
		return 1;
	if (schedule_init(&schedule, by_thread ? NULL : &order, by_resource ? &table : NULL, &stop) ||
	    order_init(&order, schedule.places, 2 * schedule.places, NULL) || feed_init(&feed, &schedule, passes > 1) ||
	    feed_start(&feed))
		return 1;
	for (uint32_t t = 0; t < schedule.thread_count; t++)
		threads[t].cursor = schedule_cursor(&schedule, t);
	for (pass = 0; pass < passes; pass++) {
		if (schedule.order && !schedule.streams)
			order_reset(&order);
		run_pass(depth);
	}
	atomic_store(&stop, true);
	if (!feed_join(&feed, JOIN_SECONDS_MAX))
		return 1;
	feed_free(&feed);
	order_destroy(&order);
	schedule_free(&schedule);
	files_free(&table);
	trace_close(&trace);
	return 0;
}

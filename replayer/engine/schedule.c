// SPDX-License-Identifier: Apache-2.0
// Turns the records of a trace into one list of operations per thread, and numbers them for the interval order.
#include <errno.h>
#include <stdlib.h>

#include "replayer/engine/message.h"
#include "replayer/engine/schedule.h"

enum { THREADS_MAX = 32768 };

/* Open addressing from recorded thread id to index; never more than half full. */
struct thread_index {
	uint32_t *slots; /* index + 1; 0 = free */
	uint32_t mask;
};

static void free_slots(struct thread_index *index)
{
	free(index->slots);
}

static uint32_t *find_slot(const struct thread_index *index, const struct thread_plan *threads, uint32_t thread)
{
	uint32_t at = thread * 2654435761u;

	for (;; at++) {
		uint32_t *slot = &index->slots[at & index->mask];

		if (!*slot || threads[*slot - 1].thread == thread)
			return slot;
	}
}

static int count_operations(struct schedule *schedule, const struct trace *trace, struct thread_index *index)
{
	for (uint32_t i = 0; i < trace->count; i++) {
		const union record *record = &trace->records[i];

		if (!record_is_operation(record))
			continue;
		uint32_t *slot = find_slot(index, schedule->threads, record->io.thread);

		if (!*slot) {
			if (schedule->thread_count == THREADS_MAX) {
				complain("%s has more than %d threads, which cannot be replayed at once: replay it in "
					 "parts",
					 trace->path, THREADS_MAX);
				return -E2BIG;
			}
			schedule->threads[schedule->thread_count].thread = record->io.thread;
			*slot = ++schedule->thread_count;
		}
		struct thread_plan *thread = &schedule->threads[*slot - 1];

		thread->count++;
		if (!schedule->count++ || record->io.start_ns < schedule->first_start_ns)
			schedule->first_start_ns = record->io.start_ns;
		if (record->io.start_ns > schedule->last_start_ns)
			schedule->last_start_ns = record->io.start_ns;
		if (record->kind != RECORD_IO)
			continue;
		uint32_t bytes = io_replay_bytes(&record->io);
		if (record->io.op == IO_READ && bytes > thread->read_bytes_max)
			thread->read_bytes_max = bytes;
		if (record->io.op == IO_WRITE && bytes > schedule->write_bytes_max)
			schedule->write_bytes_max = bytes;
	}
	return 0;
}

static int compare_starts(const void *left, const void *right, void *records)
{
	const struct operation *a = left, *b = right;
	uint64_t start_a = ((const union record *)records)[a->record].io.start_ns;
	uint64_t start_b = ((const union record *)records)[b->record].io.start_ns;

	if (start_a != start_b)
		return start_a < start_b ? -1 : 1;
	return a->record < b->record ? -1 : a->record > b->record;
}

/* The format promises the order of starts within a thread; foreign and damaged traces may break it. */
static void sort_threads(struct schedule *schedule, const struct trace *trace)
{
	for (uint32_t t = 0; t < schedule->thread_count; t++) {
		struct operation *operations = &schedule->operations[schedule->threads[t].first];
		uint32_t count = schedule->threads[t].count;

		for (uint32_t i = 1; i < count; i++) {
			if (compare_starts(&operations[i - 1], &operations[i], (void *)trace->records) > 0) {
				qsort_r(operations, count, sizeof(*operations), compare_starts, (void *)trace->records);
				break;
			}
		}
	}
}

int schedule_build(struct schedule *schedule, const struct trace *trace)
{
	__attribute__((cleanup(free_slots))) struct thread_index index = {.mask = 2 * THREADS_MAX - 1};

	*schedule = (struct schedule){0};
	index.slots = calloc(2 * THREADS_MAX, sizeof(*index.slots));
	schedule->threads = calloc(THREADS_MAX, sizeof(*schedule->threads));
	if (!index.slots || !schedule->threads) {
		complain("no memory for the threads of %s", trace->path);
		return -ENOMEM;
	}
	int error = count_operations(schedule, trace, &index);
	if (error)
		return error;
	schedule->operations = calloc(schedule->count ? schedule->count : 1, sizeof(*schedule->operations));
	if (!schedule->operations) {
		complain("no memory for the %u operations of %s", schedule->count, trace->path);
		return -ENOMEM;
	}
	uint32_t first = 0;
	for (uint32_t t = 0; t < schedule->thread_count; t++) {
		schedule->threads[t].first = first;
		first += schedule->threads[t].count;
		schedule->threads[t].count = 0;
	}
	for (uint32_t i = 0; i < trace->count; i++) {
		if (!record_is_operation(&trace->records[i]))
			continue;
		struct thread_plan *thread =
			&schedule->threads[*find_slot(&index, schedule->threads, trace->records[i].io.thread) - 1];

		schedule->operations[thread->first + thread->count++].record = i;
	}
	sort_threads(schedule, trace);
	return 0;
}

/*
 * One recorded end. Among equal ends those of positive duration come first: an operation that starts at that moment
 * waits for them, but not for those of no duration, which may be itself or start with it. So an operation only ever
 * waits for operations with an earlier start, and the waiting cannot go in a circle.
 */
struct ending {
	uint64_t end_ns;
	uint32_t operation;
	bool instant;
};

static int compare_endings(const void *left, const void *right)
{
	const struct ending *a = left, *b = right;

	if (a->end_ns != b->end_ns)
		return a->end_ns < b->end_ns ? -1 : 1;
	if (a->instant != b->instant)
		return a->instant ? 1 : -1;
	return a->operation < b->operation ? -1 : a->operation > b->operation;
}

/* How many operations ended before start_ns, or at it after a positive duration. */
static uint32_t count_ended(const struct ending *endings, uint32_t count, uint64_t start_ns)
{
	uint32_t low = 0, high = count;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		const struct ending *ending = &endings[middle];

		if (ending->end_ns < start_ns || (ending->end_ns == start_ns && !ending->instant))
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

int schedule_number_intervals(struct schedule *schedule, const struct trace *trace)
{
	struct ending *endings = calloc(schedule->count ? schedule->count : 1, sizeof(*endings));

	if (!endings) {
		complain("no memory to number the %u operations of %s; --order thread needs none", schedule->count,
			 trace->path);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < schedule->count; i++) {
		const union record *record = &trace->records[schedule->operations[i].record];

		endings[i] = (struct ending){record_end_ns(record), i, record_end_ns(record) == record->io.start_ns};
	}
	qsort(endings, schedule->count, sizeof(*endings), compare_endings);
	for (uint32_t rank = 0; rank < schedule->count; rank++) {
		struct operation *operation = &schedule->operations[endings[rank].operation];

		operation->end_rank = rank;
		operation->wait_for =
			count_ended(endings, schedule->count, trace->records[operation->record].io.start_ns);
	}
	free(endings);
	return 0;
}

void schedule_free(struct schedule *schedule)
{
	free(schedule->operations);
	free(schedule->threads);
}

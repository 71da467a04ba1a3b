// SPDX-License-Identifier: Apache-2.0
// Turns the operations of a trace that start next into a segment of a schedule.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "replayer/engine/message.h"
#include "replayer/engine/segment.h"

static const struct position first_position = {0, 0}, last_position = {UINT64_MAX, UINT64_MAX};

struct candidate {
	uint64_t start_ns;
	uint64_t index; /* of the record in the segment */
};

static bool is_before(struct position a, struct position b)
{
	return a.start_ns != b.start_ns ? a.start_ns < b.start_ns : a.number < b.number;
}

static int compare_candidates(const void *left, const void *right)
{
	const struct candidate *a = left, *b = right;

	if (a->start_ns != b->start_ns)
		return a->start_ns < b->start_ns ? -1 : 1;
	return a->index < b->index ? -1 : a->index > b->index;
}

static int compare_operations(const void *left, const void *right)
{
	return compare_starts(left, right);
}

int segment_builder_init(struct segment_builder *builder, struct schedule *schedule)
{
	bool complete = true;

	*builder = (struct segment_builder){.schedule = schedule};
	if (schedule->streams) {
		builder->numbers = calloc(SEGMENT_RECORDS_MAX, sizeof(*builder->numbers));
		builder->candidates = calloc(SEGMENT_RECORDS_MAX, sizeof(*builder->candidates));
		complete = builder->numbers && builder->candidates;
		if (schedule->order && schedule->wake_ups) {
			builder->heard = calloc(SEGMENT_RECORDS_MAX, sizeof(*builder->heard));
			complete &= !!builder->heard;
		}
	}
	if (schedule->order)
		complete &= planner_init(&builder->planner, schedule) == 0;
	builder->planner.heard = builder->heard;
	if (complete)
		return 0;
	complain("no memory to put the operations of %s into their order", schedule->trace->path);
	return -ENOMEM;
}

void segment_builder_free(struct segment_builder *builder)
{
	free(builder->numbers);
	free(builder->candidates);
	free(builder->heard);
	planner_free(&builder->planner);
	*builder = (struct segment_builder){0};
}

/*
 * Sorts by insertion, as records mostly are near the order of their starts, which then takes far fewer steps than
 * qsort(); and by that where they prove not to be.
 */
static void sort_candidates(struct candidate *candidates, uint64_t count)
{
	uint64_t steps_left = 8 * count;

	for (uint64_t i = 1; i < count; i++) {
		struct candidate candidate = candidates[i];
		uint64_t at = i;

		for (; at > 0 && compare_candidates(&candidates[at - 1], &candidate) > 0 && steps_left;
		     at--, steps_left--)
			candidates[at] = candidates[at - 1];
		candidates[at] = candidate;
	}
	if (!steps_left)
		qsort(candidates, count, sizeof(*candidates), compare_candidates);
}

/* Leaves the SEGMENT_OPERATIONS first of more records, and says where the last of them starts. */
static struct position narrow(struct segment_builder *builder, struct segment *segment, uint64_t count)
{
	uint64_t *numbers = builder->numbers;
	uint64_t kept = 0;

	for (uint64_t i = 0; i < count; i++)
		builder->candidates[i] = (struct candidate){segment->records[i].io.start_ns, i};
	sort_candidates(builder->candidates, count);
	const struct candidate *last = &builder->candidates[SEGMENT_OPERATIONS - 1];
	struct position until = {last->start_ns, numbers[last->index]};
	for (uint64_t i = 0; i < count; i++) {
		if (is_before(until, (struct position){segment->records[i].io.start_ns, numbers[i]}))
			continue;
		segment->records[kept] = segment->records[i];
		if (builder->heard)
			builder->heard[kept] = builder->heard[i];
		numbers[kept++] = numbers[i];
	}
	return until;
}

static uint64_t copy_block(struct segment_builder *builder, struct segment *segment, uint64_t block,
			   struct position until, uint64_t count)
{
	const struct trace *trace = builder->schedule->trace;
	uint64_t first = block * TRACE_BLOCK_RECORDS;
	uint64_t records = trace->count - first < TRACE_BLOCK_RECORDS ? trace->count - first : TRACE_BLOCK_RECORDS;

	for (uint64_t number = first; number < first + records; number++) {
		const union record *record = &trace->records[number];
		struct position position = {record->io.start_ns, number};

		if (!record_is_operation(record) || is_before(position, builder->from) || is_before(until, position))
			continue;
		builder->numbers[count] = number;
		if (builder->heard)
			builder->heard[count] = number ? heard_before(record - 1, record) : (struct heard){0};
		segment->records[count++] = *record;
	}
	trace_drop(trace, first, records);
	return count;
}

/*
 * Copies the operations that start next, and says where the next segment begins. Every block that may hold one is read:
 * of a trace in the order of the starts, or near it, few; of any other as many as its disorder makes, but into no more
 * memory.
 */
static uint64_t gather(struct segment_builder *builder, struct segment *segment)
{
	const struct schedule *schedule = builder->schedule;
	struct position until = last_position;
	uint64_t count = 0;

	for (uint64_t i = 0; i < schedule->block_count && !atomic_load(schedule->stop); i++) {
		const struct block *block = &schedule->blocks[i];

		if (block->first_start_ns > block->last_start_ns || block->last_start_ns < builder->from.start_ns ||
		    block->first_start_ns > until.start_ns)
			continue;
		count = copy_block(builder, segment, i, until, count);
		bool full = count + TRACE_BLOCK_RECORDS > SEGMENT_RECORDS_MAX;
		if (count > SEGMENT_OPERATIONS && (full || until.start_ns == UINT64_MAX)) {
			until = narrow(builder, segment, count);
			count = SEGMENT_OPERATIONS;
		}
	}
	if (count > SEGMENT_OPERATIONS) {
		until = narrow(builder, segment, count);
		count = SEGMENT_OPERATIONS;
	}
	/* Without narrowing these were all that were left. */
	bool last = (builder->number + 1) % schedule->segments == 0;
	builder->from = last ? first_position : (struct position){until.start_ns, until.number + 1};
	return count;
}

/* Index of the thread of an operation; thread_count where it is none, or the file has changed since the survey. */
static uint32_t thread_of(const struct schedule *schedule, const union record *record)
{
	uint32_t thread = record_is_operation(record) ? schedule_thread(schedule, record->io.thread) : UINT32_MAX;

	return thread < schedule->thread_count ? thread : schedule->thread_count;
}

/*
 * Groups the operations among `count` records by thread, which mostly puts them into the order of their starts there. How
 * many there are.
 */
static uint32_t distribute(const struct schedule *schedule, struct segment *segment, const union record *records,
			   uint64_t count)
{
	uint32_t threads = schedule->thread_count, first = 0;
	uint32_t *next = segment->first;

	memset(next, 0, (threads + 1) * sizeof(*next));
	for (const union record *record = records; record < records + count; record++)
		next[thread_of(schedule, record)]++;
	for (uint32_t t = 0; t < threads; t++) {
		uint32_t own = next[t];

		next[t] = first;
		first += own;
	}
	for (const union record *record = records; record < records + count; record++) {
		uint32_t thread = thread_of(schedule, record);

		if (thread < threads)
			segment->operations[next[thread]++].record = record;
	}
	/* Each is now where the next thread begins. */
	memmove(segment->first + 1, segment->first, threads * sizeof(*segment->first));
	segment->first[0] = 0;
	return first;
}

/* The format promises the order of starts within a thread; requests of AIO, foreign and damaged traces may break it. */
static void sort_threads(const struct schedule *schedule, struct segment *segment)
{
	for (uint32_t t = 0; t < schedule->thread_count; t++) {
		struct operation *operations = &segment->operations[segment->first[t]];
		uint32_t count = segment->first[t + 1] - segment->first[t];
		bool sorted = true;

		for (uint32_t i = 1; i < count && sorted; i++)
			sorted = compare_operations(&operations[i - 1], &operations[i]) < 0;
		if (!sorted)
			qsort(operations, count, sizeof(*operations), compare_operations);
	}
}

bool segment_build(struct segment_builder *builder)
{
	struct schedule *schedule = builder->schedule;
	struct segment *segment = &schedule->kept[builder->number % SEGMENTS];
	uint32_t count;

	if (schedule->streams) {
		uint64_t gathered = gather(builder, segment);
		count = distribute(schedule, segment, segment->records, gathered);
	} else {
		count = distribute(schedule, segment, schedule->trace->records, schedule->trace->count);
	}
	/* Then not all may be there: also of records that were lost while they were distributed (trace_loss.h). */
	if (atomic_load(schedule->stop))
		return false;
	sort_threads(schedule, segment);
	if (schedule->order && !plan_segment(&builder->planner, segment, builder->number, count))
		return false;
	atomic_store(&segment->threads_left, schedule->thread_count);
	builder->number++;
	return true;
}

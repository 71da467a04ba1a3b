// SPDX-License-Identifier: Apache-2.0
// Turns the operations of a trace that start next into a segment of a schedule.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "replayer/engine/message.h"
#include "replayer/engine/segment.h"

/* Room for candidates beyond one segment: the more, the less often they are sorted where a trace is disordered. */
#define GATHERED_MAX (SEGMENT_OPERATIONS + SEGMENT_OPERATIONS / 4 + TRACE_BLOCK_RECORDS)

static const struct position first_position = {0, 0}, last_position = {UINT64_MAX, UINT64_MAX};

struct gathered_start {
	uint64_t start_ns;
	uint32_t index; /* of the candidate; later, of the operation in its segment */
	uint32_t thread; /* index */
};

/*
 * One recorded end. Among equal ends those of positive duration come first: an operation that starts at that moment
 * waits for them, but not for those of no duration, which may be itself or start with it. So an operation only ever
 * waits for operations with an earlier start, and the waiting cannot go in a circle.
 */
struct ending {
	uint64_t end_ns;
	uint64_t instant: 1;
	uint64_t place: 63; /* as in order.h */
};

static bool is_before(struct position a, struct position b)
{
	return a.start_ns != b.start_ns ? a.start_ns < b.start_ns : a.number < b.number;
}

static struct position position_of(const struct operation *operation)
{
	return (struct position){operation->record.io.start_ns, operation->number};
}

static int compare_starts(const void *left, const void *right)
{
	const struct gathered_start *a = left, *b = right;

	if (a->start_ns != b->start_ns)
		return a->start_ns < b->start_ns ? -1 : 1;
	return a->index < b->index ? -1 : a->index > b->index;
}

static int compare_endings(const void *left, const void *right)
{
	const struct ending *a = left, *b = right;

	if (a->end_ns != b->end_ns)
		return a->end_ns < b->end_ns ? -1 : 1;
	if (a->instant != b->instant)
		return a->instant ? 1 : -1;
	return a->place < b->place ? -1 : a->place > b->place;
}

static bool has_ended(const struct ending *ending, uint64_t start_ns)
{
	return ending->end_ns < start_ns || (ending->end_ns == start_ns && !ending->instant);
}

/*
 * Sorts what mostly is near its order, as records and their ends are, by insertion, which then takes far fewer steps than
 * qsort(); what proves not to be, by that.
 */
static void sort_near(void *array, uint64_t count, int (*compare)(const void *, const void *))
{
	struct {
		uint64_t words[2];
	} *items = array, item;
	uint64_t steps_left = 8 * count;

	_Static_assert(sizeof(struct gathered_start) == sizeof(*items), "starts");
	_Static_assert(sizeof(struct ending) == sizeof(*items), "endings");
	for (uint64_t i = 1; i < count; i++) {
		uint64_t at = i;

		memcpy(&item, &items[i], sizeof(item));
		for (; at > 0 && compare(&items[at - 1], &item) > 0 && steps_left; at--, steps_left--)
			memcpy(&items[at], &items[at - 1], sizeof(item));
		memcpy(&items[at], &item, sizeof(item));
	}
	if (!steps_left)
		qsort(array, count, sizeof(*items), compare);
}

int segment_builder_init(struct segment_builder *builder, struct schedule *schedule)
{
	bool streams = schedule_streams(schedule);

	*builder = (struct segment_builder){.schedule = schedule};
	builder->gathered_max = streams ? GATHERED_MAX : schedule->count;
	builder->gathered = calloc(builder->gathered_max, sizeof(*builder->gathered));
	builder->starts = calloc(builder->gathered_max, sizeof(*builder->starts));
	builder->next = calloc(schedule->thread_count, sizeof(*builder->next));
	/* Those that are carried on are of segments in memory: see number_intervals(). */
	builder->endings = calloc(streams ? OPERATIONS_KEPT : schedule->count, sizeof(*builder->endings));
	if (builder->gathered && builder->starts && builder->next && builder->endings)
		return 0;
	complain("no memory to put the operations of %s into their order", schedule->trace->path);
	return -ENOMEM;
}

void segment_builder_free(struct segment_builder *builder)
{
	free(builder->gathered);
	free(builder->starts);
	free(builder->next);
	free(builder->endings);
	*builder = (struct segment_builder){0};
}

/* The starts of all candidates in their order. */
static void sort_starts(struct segment_builder *builder, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++) {
		builder->starts[i].start_ns = builder->gathered[i].record.io.start_ns;
		builder->starts[i].index = (uint32_t)i;
	}
	sort_near(builder->starts, count, compare_starts);
}

/* Leaves the `wanted` first of `count` candidates, and says where the last of them starts. */
static struct position narrow(struct segment_builder *builder, uint64_t count, uint64_t wanted)
{
	sort_starts(builder, count);
	struct position until = position_of(&builder->gathered[builder->starts[wanted - 1].index]);
	struct operation *kept = builder->gathered;
	for (uint64_t i = 0; i < count; i++) {
		if (!is_before(until, position_of(&builder->gathered[i])))
			*kept++ = builder->gathered[i];
	}
	return until;
}

static uint64_t gather_block(struct segment_builder *builder, uint64_t block, struct position until, uint64_t count)
{
	const struct trace *trace = builder->schedule->trace;
	uint64_t first = block * TRACE_BLOCK_RECORDS;
	uint64_t records = trace->count - first < TRACE_BLOCK_RECORDS ? trace->count - first : TRACE_BLOCK_RECORDS;

	for (uint64_t number = first; number < first + records && count < builder->gathered_max; number++) {
		const union record *record = &trace->records[number];
		struct position position = {record->io.start_ns, number};

		if (record_is_operation(record) && !is_before(position, builder->from) && !is_before(until, position))
			builder->gathered[count++] = (struct operation){.record = *record, .number = number};
	}
	trace_drop(trace, first, records);
	return count;
}

/*
 * Finds the `wanted` operations that start next. Every block that may hold one is read: in a trace in the order of the
 * starts, or near it, few; of any other as many as its disorder makes, but no more memory.
 */
static uint64_t gather(struct segment_builder *builder, uint64_t wanted)
{
	const struct schedule *schedule = builder->schedule;
	struct position until = last_position;
	uint64_t count = 0;

	for (uint64_t i = 0; i < schedule->block_count; i++) {
		const struct block *block = &schedule->blocks[i];

		if (block->last_start_ns < builder->from.start_ns || block->first_start_ns > until.start_ns)
			continue;
		if (atomic_load_explicit(schedule->stop, memory_order_relaxed))
			return 0;
		count = gather_block(builder, i, until, count);
		bool full = count + TRACE_BLOCK_RECORDS > builder->gathered_max;
		if (count > wanted && (full || until.start_ns == UINT64_MAX)) {
			until = narrow(builder, count, wanted);
			count = wanted;
		}
	}
	if (count > wanted) {
		narrow(builder, count, wanted);
		count = wanted;
	}
	return count;
}

/* From the order of the trace into that of the threads. `starts` then has the order of the starts, and indices there. */
static void distribute(struct segment_builder *builder, struct segment *segment, uint64_t count)
{
	const struct schedule *schedule = builder->schedule;

	sort_starts(builder, count);
	memset(segment->first, 0, (schedule->thread_count + 1) * sizeof(*segment->first));
	for (uint64_t i = 0; i < count; i++) {
		struct gathered_start *start = &builder->starts[i];

		start->thread = (uint32_t)schedule_thread(schedule, builder->gathered[start->index].record.io.thread);
		segment->first[start->thread + 1]++;
	}
	for (uint32_t t = 0; t < schedule->thread_count; t++) {
		builder->next[t] = segment->first[t];
		segment->first[t + 1] += segment->first[t];
	}
	for (uint64_t i = 0; i < count; i++) {
		struct gathered_start *start = &builder->starts[i];
		uint32_t index = builder->next[start->thread]++;

		segment->operations[index] = builder->gathered[start->index];
		start->index = index;
	}
}

static void add_endings(struct segment_builder *builder, const struct segment *segment, uint64_t count)
{
	uint64_t first_place = (uint64_t)builder->number * SEGMENT_OPERATIONS;
	uint64_t recycled = atomic_load(&builder->schedule->order->recycled);
	struct ending *end = builder->endings;

	for (uint64_t i = 0; i < builder->endings_count; i++) {
		if (builder->endings[i].place >= recycled)
			*end++ = builder->endings[i];
	}
	for (uint64_t i = 0; i < count; i++) {
		uint32_t index = builder->starts[i].index;
		const union record *record = &segment->operations[index].record;
		uint64_t end_ns = record_end_ns(record);

		*end++ = (struct ending){end_ns, end_ns == record->io.start_ns, first_place + index};
	}
	builder->endings_count = (uint64_t)(end - builder->endings);
}

/*
 * Gives the operations what they have to wait for, and ranks to those that ended before the last of them started: no
 * later operation can have ended before. The others are carried on to the next segments, until theirs has completed:
 * then nothing has to wait for them, so that they need no rank. (At the end of a pass, too: what is carried into the
 * next one has completed, since passes that keep an order do not overlap.)
 */
static void number_intervals(struct segment_builder *builder, const struct segment *segment, uint64_t count)
{
	struct order *order = builder->schedule->order;
	uint64_t ranked = order->rank, ended = 0;

	add_endings(builder, segment, count);
	sort_near(builder->endings, builder->endings_count, compare_endings);
	const struct ending *endings = builder->endings;
	for (uint64_t i = 0; i < count; i++) {
		struct operation *operation = &segment->operations[builder->starts[i].index];

		for (; ended < builder->endings_count && has_ended(&endings[ended], operation->record.io.start_ns);
		     ended++)
			order_rank(order, endings[ended].place);
		operation->wait_for = ranked + ended;
	}
	builder->endings_count -= ended;
	memmove(builder->endings, &endings[ended], builder->endings_count * sizeof(*endings));
	order_publish(order);
}

bool segment_build(struct segment_builder *builder)
{
	struct schedule *schedule = builder->schedule;
	struct segment *segment = &schedule->kept[builder->number % SEGMENTS];
	uint64_t count = gather(builder, schedule_streams(schedule) ? SEGMENT_OPERATIONS : schedule->count);

	if (atomic_load(schedule->stop))
		return false;
	distribute(builder, segment, count);
	if (schedule->order)
		number_intervals(builder, segment, count);
	atomic_store(&segment->threads_left, schedule->thread_count);
	builder->number++;
	if (builder->number % schedule->segments == 0) {
		builder->from = first_position;
	} else if (count) {
		builder->from = position_of(&segment->operations[builder->starts[count - 1].index]);
		builder->from.number++;
	}
	return true;
}

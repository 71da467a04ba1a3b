// SPDX-License-Identifier: Apache-2.0
// Turns the operations of segments, in the order of their recorded starts and ends, into what each has to wait for.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "replayer/engine/plan.h"

/* With what a thread was woken after. */
_Static_assert(CONFLICTS_MAX + 1 < 1 << WAIT_COUNT_BITS, "the length of a list of waits");

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

/* What is kept of an operation from its start to its end. */
struct planned {
	uint32_t thread; /* index */
	struct names_found names;
};

static int compare_endings(const void *left, const void *right)
{
	const struct ending *a = left, *b = right;

	if (a->end_ns != b->end_ns)
		return a->end_ns < b->end_ns ? -1 : 1;
	if (a->instant != b->instant)
		return a->instant ? 1 : -1;
	return a->place < b->place ? -1 : a->place > b->place;
}

int planner_init(struct planner *planner, struct schedule *schedule)
{
	*planner = (struct planner){.schedule = schedule};
	/* Those that are carried on are of segments in memory: see carry(). */
	planner->endings = calloc(schedule->places, sizeof(*planner->endings));
	planner->planned = calloc(schedule->places, sizeof(*planner->planned));
	planner->by_start =
		calloc(schedule->streams ? SEGMENT_OPERATIONS : schedule->places, sizeof(*planner->by_start));
	planner->heap = calloc(schedule->thread_count, sizeof(*planner->heap));
	planner->next = calloc(schedule->thread_count, sizeof(*planner->next));
	if (!planner->endings || !planner->planned || !planner->by_start || !planner->heap || !planner->next)
		return -ENOMEM;
	if (schedule->wake_ups && causes_init(&planner->causes, schedule->places))
		return -ENOMEM;
	return schedule->by_files ? conflicts_init(&planner->conflicts, schedule->by_files, schedule->thread_count) : 0;
}

void planner_free(struct planner *planner)
{
	free(planner->endings);
	free(planner->planned);
	free(planner->by_start);
	free(planner->heap);
	free(planner->next);
	causes_free(&planner->causes);
	conflicts_free(&planner->conflicts);
	*planner = (struct planner){0};
}

static bool starts_sooner(const struct planner *planner, const struct segment *segment, uint32_t a, uint32_t b)
{
	const struct operation *operations = segment->operations;

	return compare_starts(&operations[planner->next[a]], &operations[planner->next[b]]) < 0;
}

/* The thread at the top of the heap goes down to where its next operation belongs. */
static void sink(const struct planner *planner, const struct segment *segment, uint32_t at, uint32_t count)
{
	uint32_t *heap = planner->heap;
	uint32_t thread = heap[at];

	for (uint32_t child; (child = 2 * at + 1) < count; at = child) {
		if (child + 1 < count && starts_sooner(planner, segment, heap[child + 1], heap[child]))
			child++;
		if (!starts_sooner(planner, segment, heap[child], thread))
			break;
		heap[at] = heap[child];
	}
	heap[at] = thread;
}

/* Merges the operations of the threads. */
static void sort_by_start(struct planner *planner, const struct segment *segment)
{
	struct planned *planned = planner->planned + (segment->operations - planner->schedule->operations);
	uint32_t threads = 0, count = 0;

	for (uint32_t t = 0; t < planner->schedule->thread_count; t++) {
		planner->next[t] = segment->first[t];
		if (segment->first[t] < segment->first[t + 1])
			planner->heap[threads++] = t;
	}
	for (uint32_t at = threads / 2; at-- > 0;)
		sink(planner, segment, at, threads);
	while (threads) {
		uint32_t thread = planner->heap[0];

		planned[planner->next[thread]].thread = thread;
		planner->by_start[count++] = planner->next[thread]++;
		if (planner->next[thread] == segment->first[thread + 1])
			planner->heap[0] = planner->heap[--threads];
		sink(planner, segment, 0, threads);
	}
}

/* By insertion, which takes few steps for what is in the order of the starts; and by qsort() where it does not. */
static void sort_endings(struct ending *endings, uint64_t count)
{
	uint64_t steps_left = 8 * count;

	for (uint64_t i = 1; i < count && steps_left; i++) {
		struct ending ending = endings[i];
		uint64_t at = i;

		for (; at > 0 && compare_endings(&endings[at - 1], &ending) > 0 && steps_left; at--, steps_left--)
			endings[at] = endings[at - 1];
		endings[at] = ending;
	}
	if (!steps_left)
		qsort(endings, count, sizeof(*endings), compare_endings);
}

/* Drops endings of what has completed. */
static void carry(struct planner *planner)
{
	uint64_t recycled = atomic_load(&planner->schedule->order->recycled);
	struct ending *end = planner->endings;

	for (uint64_t i = 0; i < planner->endings_count; i++) {
		if (planner->endings[i].place >= recycled)
			*end++ = planner->endings[i];
	}
	planner->endings_count = (uint64_t)(end - planner->endings);
	planner->causes.recycled = recycled;
	if (planner->schedule->by_files)
		conflicts_recycle(&planner->conflicts, recycled);
}

/* Those of the segment, after those that are carried on. */
static void add_endings(struct planner *planner, const struct segment *segment, uint64_t first_place, uint32_t count)
{
	struct ending *end = planner->endings + planner->endings_count;

	for (uint32_t i = 0; i < count; i++) {
		const union record *record = segment->operations[planner->by_start[i]].record;
		uint64_t end_ns = record_end_ns(record);

		*end++ = (struct ending){end_ns, end_ns == record->io.start_ns, first_place + planner->by_start[i]};
	}
	planner->endings_count += count;
	sort_endings(planner->endings, planner->endings_count);
}

static struct subject subject_of(const struct planner *planner, uint64_t place)
{
	uint64_t slot = place % planner->schedule->places;
	const union record *record = planner->schedule->operations[slot].record;
	const struct planned *planned = &planner->planned[slot];

	return (struct subject){.start_ns = record->io.start_ns,
				.end_ns = record_end_ns(record),
				.place = place,
				.thread = planned->thread,
				.process = record->io.process,
				.names = planned->names,
				.record = record};
}

/* Gives it the next rank, and has later ones wait for it. */
static void end_operation(struct planner *planner, uint64_t place)
{
	const struct schedule *schedule = planner->schedule;

	order_rank(schedule->order, place);
	/* Of the pass before this one all has completed: passes that keep an order do not overlap. */
	if (place < planner->pass_place)
		return;
	if (planner->causes.slots) {
		const union record *record = schedule->operations[place % schedule->places].record;
		struct cause cause = {record->io.id, place, record_end_ns(record)};

		planner->by_rank |= !causes_add(&planner->causes, &cause);
	}
	if (!schedule->by_files || planner->by_rank)
		return;
	struct subject subject = subject_of(planner, place);
	planner->by_rank = !conflicts_end(&planner->conflicts, &subject);
}

/* A list with room for so many more elements of some size; NULL when there is no memory. */
static void *with_room(void *list, uint32_t count, uint32_t *room, uint32_t wanted, size_t bytes)
{
	if (count + wanted <= *room)
		return list;
	uint32_t larger = 2 * *room + wanted;
	void *moved = reallocarray(list, larger, bytes);
	if (moved)
		*room = larger;
	return moved;
}

/* False when there is no memory. */
static bool add_wait(struct segment *segment, uint64_t place)
{
	uint32_t *waits =
		with_room(segment->waits, segment->waits_count, &segment->waits_room, CONFLICTS_MAX, sizeof(*waits));
	if (!waits)
		return false;
	segment->waits = waits;
	segment->waits[segment->waits_count++] = (uint32_t)place;
	return true;
}

static struct heard heard_of(const struct planner *planner, const struct segment *segment, const union record *record)
{
	if (planner->heard)
		return planner->heard[record - segment->records];
	return record > planner->schedule->trace->records ? heard_before(record - 1, record) : (struct heard){0};
}

/* What its thread was woken after. */
static void find_wake_up(struct planner *planner, struct segment *segment, struct operation *operation)
{
	operation->wake_up = 0;
	if (!planner->causes.slots)
		return;
	struct heard heard = heard_of(planner, segment, operation->record);
	const struct cause *cause = heard.cause ? causes_find(&planner->causes, heard.cause) : NULL;
	/* Damaged records may name what is of the thread itself: that has ended, as what is known here has. */
	if (!cause || cause->place < planner->pass_place)
		return;
	struct wake_up *wake_ups =
		with_room(segment->wake_ups, segment->wake_ups_count, &segment->wake_ups_room, 1, sizeof(*wake_ups));
	if (!wake_ups) {
		planner->by_rank = true;
		return;
	}
	segment->wake_ups = wake_ups;
	wake_ups[segment->wake_ups_count++] =
		(struct wake_up){cause->place, cause->end_ns, heard.slept_ns, heard.awake_ns};
	operation->wake_up = segment->wake_ups_count;
}

/* The list of what it waits for; false when that is too long, or there is no memory. */
static bool list_waits(struct planner *planner, struct segment *segment, struct operation *operation, uint64_t place)
{
	const struct schedule *schedule = planner->schedule;
	uint32_t first = segment->waits_count;
	struct waits waits;

	struct subject subject = subject_of(planner, place);
	subject.names = names_start(&planner->conflicts.names, subject.record);
	planner->planned[place % schedule->places].names = subject.names;
	conflicts_start(&planner->conflicts, &subject, &waits);
	bool complete = !waits.too_many;
	for (uint32_t i = 0; i < waits.count && complete; i++)
		complete = add_wait(segment, waits.list[i].place);
	if (complete && operation->wake_up)
		complete = add_wait(segment, segment->wake_ups[operation->wake_up - 1].place);
	if (!complete)
		return false;
	uint32_t count = segment->waits_count - first;
	operation->wait_for = count ? (uint64_t)first << WAIT_COUNT_BITS | count : 0;
	return true;
}

static void start_operation(struct planner *planner, struct segment *segment, struct operation *operation,
			    uint64_t place)
{
	const struct schedule *schedule = planner->schedule;

	find_wake_up(planner, segment, operation);
	if (!schedule->by_files || planner->by_rank || !list_waits(planner, segment, operation, place))
		operation->wait_for = schedule->order->rank ? WAIT_FOR_RANK | schedule->order->rank : 0;
}

/* Where many operations overlap, as in damaged traces, planning one of them takes as long as there are others. */
static bool is_stopped(const struct schedule *schedule)
{
	return atomic_load_explicit(schedule->stop, memory_order_relaxed);
}

bool plan_segment(struct planner *planner, struct segment *segment, uint32_t number, uint32_t count)
{
	const struct schedule *schedule = planner->schedule;
	uint64_t first_place = (uint64_t)number * SEGMENT_OPERATIONS;
	struct ending *ending = planner->endings;

	carry(planner);
	sort_by_start(planner, segment);
	add_endings(planner, segment, first_place, count);
	segment->waits_count = segment->wake_ups_count = 0;
	if (number % schedule->segments == 0) {
		planner->pass_place = first_place;
		if (schedule->by_files)
			conflicts_reset(&planner->conflicts);
	}
	const struct ending *end = ending + planner->endings_count;

	for (uint32_t i = 0; i < count; i++) {
		struct operation *operation = &segment->operations[planner->by_start[i]];

		while (ending < end && ended_before(ending->end_ns - !ending->instant, ending->end_ns,
						    operation->record->io.start_ns)) {
			if (is_stopped(schedule))
				return false;
			end_operation(planner, ending++->place);
		}
		if (is_stopped(schedule))
			return false;
		start_operation(planner, segment, operation, first_place + planner->by_start[i]);
	}
	planner->endings_count -= (uint64_t)(ending - planner->endings);
	memmove(planner->endings, ending, planner->endings_count * sizeof(*ending));
	order_publish(schedule->order);
	return true;
}

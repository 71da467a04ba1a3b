/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns the records of a trace into one list of operations per recorded thread, in the order of their starts.
 *
 * The lists are cut into segments: so many operations, over all threads, that start one after the other. SEGMENTS of
 * them are in memory, with copies of their records; one is given to the operations that come next when all threads have
 * completed theirs of it (feed.h). Of a trace that fits into memory at once there is one segment, which stays for all
 * passes and points into the trace (docs/decisions/0009-bounded-memory.md).
 */
#ifndef FLEXTRACE_SCHEDULE_H
#define FLEXTRACE_SCHEDULE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "replayer/engine/files.h"
#include "replayer/engine/order.h"
#include "replayer/engine/tally.h"
#include "replayer/engine/trace_reader.h"

/* Tests make these small. */
#ifndef SEGMENT_OPERATIONS
#define SEGMENT_OPERATIONS (64u << 10)
#define WHOLE_RECORDS_MAX (4u << 20) /* of a trace of one segment; with an order, which takes as much again, half */
#endif

/* All are powers of two. */
enum { SEGMENTS = 8, OPERATIONS_KEPT = SEGMENTS * SEGMENT_OPERATIONS };

/* Room for candidates beyond one segment: the more, the less often they are sorted where a trace is disordered. */
#define SEGMENT_RECORDS_MAX (SEGMENT_OPERATIONS + SEGMENT_OPERATIONS / 4 + TRACE_BLOCK_RECORDS)

/* What an operation of one thread waits for of others. */
enum order_kind {
	ORDER_RESOURCE, /* what had ended before and touches the same files or names (conflicts.h), or woke the thread (causes.h) */
	ORDER_RECORDED, /* all that had ended before */
	ORDER_THREAD, /* nothing */
};

/* Of operation.wait_for: a rank (order.h); without this bit, the first of a list in segment.waits, and its length. */
#define WAIT_FOR_RANK (1ull << 63)
#define WAIT_COUNT_BITS 8

struct operation {
	const union record *record;
	uint64_t wait_for; /* 0 = nothing */
	uint32_t wake_up; /* in segment.wake_ups, from 1 on; 0 = none */
};

/* A thread slept before this operation and was woken after another one had ended, by a thread that knew of that. */
struct wake_up {
	uint64_t place; /* of that one, as in order.h */
	uint64_t cause_end_ns; /* recorded */
	uint64_t slept_ns; /* of the time before the operation; and how long the thread was awake at its end */
	uint64_t awake_ns;
};

struct thread_plan {
	uint32_t thread; /* as recorded */
	uint32_t read_bytes_max;
	uint64_t operations[OPERATION_KINDS]; /* of one pass */
};

/* What of TRACE_BLOCK_RECORDS records is known without reading them. */
struct block {
	uint64_t first_start_ns; /* later than the last where it holds no operation */
	uint64_t last_start_ns;
};

struct segment {
	struct operation *operations; /* grouped by thread */
	uint32_t *first; /* of each thread; and the end of the last */
	uint32_t *waits; /* low halves of places (order.h) */
	uint32_t waits_count, waits_room;
	struct wake_up *wake_ups;
	uint32_t wake_ups_count, wake_ups_room;
	union record *records; /* copies in the order of the trace, where segments follow each other */
	_Atomic uint32_t threads_left; /* futex: have not completed all of theirs */
};

struct schedule {
	const struct trace *trace;
	struct order *order; /* NULL: only each thread's own */
	const struct file_table *by_files; /* ORDER_RESOURCE; else NULL */
	const atomic_bool *stop;
	uint64_t count; /* operations of one pass */
	struct thread_plan *threads;
	uint32_t thread_count;
	uint32_t *thread_slots; /* open addressing from recorded thread id to index + 1; 0 = free */
	struct block *blocks;
	uint64_t block_count;
	uint32_t write_bytes_max;
	bool writes_shared_memory;
	uint64_t first_start_ns;
	uint64_t last_start_ns;
	bool streams; /* segments follow each other; else there is one, the same in every pass */
	uint32_t segments; /* of one pass */
	struct operation *operations; /* of all segments in memory */
	uint64_t places; /* for operations, in memory */
	uint64_t wake_ups; /* in the trace */
	/*
	 * When the operation at a place has ended here, less by how much later than it should it had begun (order_waiter.owed_ns);
	 * NULL where nobody asks.
	 */
	_Atomic uint64_t *ended_ns;
	struct segment kept[SEGMENTS];
	_Atomic uint32_t built; /* futex: segments, in all passes */
};

/* For the records of the trace in turn, by blocks: finds the threads and the times. */
int schedule_survey_init(struct schedule *schedule, const struct trace *trace);
int schedule_survey(struct schedule *schedule, uint64_t first, uint64_t count);

/*
 * Makes place for the operations; feed.h puts them there. `order` and `by_files`, which may be NULL, are only noted here.
 * Waiting for a segment ends when `stop` is set.
 */
int schedule_init(struct schedule *schedule, struct order *order, const struct file_table *by_files,
		  const atomic_bool *stop);
/* After it, where it matters when operations have ended that others were woken after. */
int schedule_note_ends(struct schedule *schedule);
void schedule_free(struct schedule *schedule);

/* Index of a recorded thread. */
uint32_t schedule_thread(const struct schedule *schedule, uint32_t thread);

/* Walks the operations of one thread. All that it gave have to be told of by cursor_complete(). */
struct cursor {
	struct schedule *schedule;
	uint32_t thread; /* index */
	uint32_t segment; /* counted over all passes */
	const struct operation *at, *end; /* in that segment */
	uint32_t open[SEGMENTS]; /* operations of a segment in memory that this thread has not completed */
};

static inline struct cursor schedule_cursor(struct schedule *schedule, uint32_t thread)
{
	return (struct cursor){.schedule = schedule, .thread = thread, .segment = UINT32_MAX};
}

/* Before every pass. */
void cursor_start_pass(struct cursor *cursor);

/* For cursor_next() and cursor_must_wait(): whether there is an operation, after waiting for it if that is asked for. */
bool cursor_advance(struct cursor *cursor, bool wait);

static inline bool cursor_at_end_of_pass(const struct cursor *cursor)
{
	return cursor->at == cursor->end && (cursor->segment + 1) % cursor->schedule->segments == 0;
}

/*
 * The next operation, which stays valid until cursor_complete(); NULL at the end of the pass or after a stop. Waits for
 * the next segment to be built.
 */
static inline const struct operation *cursor_next(struct cursor *cursor)
{
	return cursor->at < cursor->end || cursor_advance(cursor, true) ? cursor->at++ : NULL;
}

/* Begins to load the one after it: what a processor reads ahead by itself is lost over a call that moves data. */
static inline void cursor_prefetch(const struct cursor *cursor)
{
	if (cursor->at < cursor->end)
		__builtin_prefetch(cursor->at->record);
}

/*
 * Whether cursor_next() would wait. Then an engine has to complete the operations that it has in flight first: the
 * memory of the next segment may be that of theirs.
 */
static inline bool cursor_must_wait(struct cursor *cursor)
{
	return cursor->at == cursor->end && !cursor_advance(cursor, false) && !cursor_at_end_of_pass(cursor);
}

/* This thread needs the memory of a segment no longer. */
void segment_leave(struct segment *segment);

/* Where an operation is in memory, counted from the first place. */
static inline uint32_t operation_place(const struct schedule *schedule, const struct operation *operation)
{
	return (uint32_t)(operation - schedule->operations);
}

static inline struct segment *operation_segment(struct schedule *schedule, const struct operation *operation)
{
	return &schedule->kept[schedule->streams ? operation_place(schedule, operation) / SEGMENT_OPERATIONS : 0];
}

/* Whether it has to wait for an operation of another thread; fills the place of one that has not completed. */
static inline bool operation_is_held(struct schedule *schedule, const struct operation *operation, uint64_t *place)
{
	if (!operation->wait_for)
		return false;
	if (operation->wait_for & WAIT_FOR_RANK)
		return !order_reached(schedule->order, operation->wait_for & ~WAIT_FOR_RANK, place);
	const struct segment *segment = operation_segment(schedule, operation);
	const uint32_t *wait = &segment->waits[operation->wait_for >> WAIT_COUNT_BITS];
	const uint32_t *end = wait + (operation->wait_for & ((1u << WAIT_COUNT_BITS) - 1));

	for (; wait < end; wait++) {
		*place = order_whole_place(schedule->order, *wait);
		if (!order_completed(schedule->order, *place))
			return true;
	}
	return false;
}

/* What woke its thread before an operation; NULL = nothing that is known. */
static inline const struct wake_up *operation_wake_up(struct schedule *schedule, const struct operation *operation)
{
	return operation->wake_up ? &operation_segment(schedule, operation)->wake_ups[operation->wake_up - 1] : NULL;
}

/* Of an operation that has completed, as schedule.ended_ns; 0 = so long ago that its memory was given away. */
static inline uint64_t schedule_ended_ns(const struct schedule *schedule, uint64_t place)
{
	uint64_t ended_ns = atomic_load(&schedule->ended_ns[place % schedule->places]);

	return place < atomic_load(&schedule->order->recycled) ? 0 : ended_ns;
}

/*
 * An operation that cursor_next() gave has completed, and is not to be looked at again. ended_ns: when, with
 * schedule.ended_ns; owed_ns: as of order_waiter.
 */
static inline void cursor_complete(struct cursor *cursor, const struct operation *operation, uint64_t ended_ns,
				   uint64_t owed_ns)
{
	struct schedule *schedule = cursor->schedule;
	uint32_t place = operation_place(schedule, operation);

	if (schedule->ended_ns)
		atomic_store_explicit(&schedule->ended_ns[place], ended_ns - owed_ns, memory_order_relaxed);
	if (schedule->order)
		order_complete(schedule->order, place, owed_ns);
	if (schedule->streams && --cursor->open[place / SEGMENT_OPERATIONS] == 0)
		segment_leave(&schedule->kept[place / SEGMENT_OPERATIONS]);
}

#endif

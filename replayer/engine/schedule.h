/* SPDX-License-Identifier: Apache-2.0 */
/* Turns the records of a trace into one list of operations per recorded thread, in the order of their starts. */
#ifndef FLEXTRACE_SCHEDULE_H
#define FLEXTRACE_SCHEDULE_H

#include <stddef.h>
#include <stdint.h>

#include "replayer/engine/trace_reader.h"

struct operation {
	uint32_t record; /* index into the trace */
	uint32_t end_rank; /* place among all operations by recorded end (order.h) */
	uint32_t wait_for; /* number of operations that ended before this one started */
};

struct thread_plan {
	uint32_t thread; /* as recorded */
	uint32_t first; /* index into operations */
	uint32_t count;
	uint32_t read_bytes_max;
};

struct schedule {
	struct operation *operations; /* grouped by thread */
	uint32_t count;
	struct thread_plan *threads;
	uint32_t thread_count;
	uint32_t write_bytes_max;
	uint64_t first_start_ns;
	uint64_t last_start_ns;
};

/* Walks the operations of one thread. */
struct cursor {
	const struct operation *at, *end;
};

static inline struct cursor schedule_cursor(const struct schedule *schedule, const struct thread_plan *plan)
{
	const struct operation *first = &schedule->operations[plan->first];

	return (struct cursor){first, first + plan->count};
}

static inline const struct operation *cursor_next(struct cursor *cursor)
{
	return cursor->at < cursor->end ? cursor->at++ : NULL;
}

/* The operation that came last comes again. */
static inline void cursor_back(struct cursor *cursor)
{
	cursor->at--;
}

int schedule_build(struct schedule *schedule, const struct trace *trace);

/* Fills end_rank and wait_for. */
int schedule_number_intervals(struct schedule *schedule, const struct trace *trace);

void schedule_free(struct schedule *schedule);

#endif

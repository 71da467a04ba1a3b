/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns the operations of one segment after the other, in the order of their recorded starts and ends, into what each has
 * to wait for: by the interval order or by resources, and by wake-ups (docs/decisions/0002-order.md).
 *
 * When a segment is planned, no later operation can end before its last one started. Operations that end after that are
 * carried on to the next segments, until theirs has completed: then nothing has to wait for them. So what is carried is
 * bounded, however long operations last.
 */
#ifndef FLEXTRACE_PLAN_H
#define FLEXTRACE_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "replayer/engine/causes.h"
#include "replayer/engine/conflicts.h"
#include "replayer/engine/schedule.h"

struct ending;
struct planned;

struct planner {
	struct schedule *schedule;
	struct conflicts conflicts; /* ORDER_RESOURCE */
	struct causes causes; /* where the trace has wake-ups */
	const struct heard *heard; /* before each record of the segment, where the trace streams */
	bool by_rank; /* no memory for more: each waits for all that had ended before, which contains the rest */
	struct ending *endings; /* of operations without a rank, by their recorded ends */
	uint64_t endings_count;
	struct planned *planned; /* operations in memory */
	uint32_t *by_start; /* operations of the segment, in the order of their starts */
	uint32_t *heap; /* threads with operations of the segment, the one that starts next first */
	uint32_t *next; /* operation of each thread */
	uint64_t pass_place; /* the first of this pass */
};

int planner_init(struct planner *planner, struct schedule *schedule);
void planner_free(struct planner *planner);

/*
 * Of segment `number`, over all passes, whose `count` operations are grouped by thread and sorted there. False when a stop was
 * asked for meanwhile: then it is not planned to its end.
 */
bool plan_segment(struct planner *planner, struct segment *segment, uint32_t number, uint32_t count);

/* By start, and where that is equal by the place of the record. */
static inline int compare_starts(const struct operation *a, const struct operation *b)
{
	if (a->record->io.start_ns != b->record->io.start_ns)
		return a->record->io.start_ns < b->record->io.start_ns ? -1 : 1;
	return a->record < b->record ? -1 : a->record > b->record;
}

#endif

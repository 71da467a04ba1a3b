/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns the operations of a trace that start next, wherever in the trace they stand, into a segment of a schedule, and
 * plans what they wait for.
 */
#ifndef FLEXTRACE_SEGMENT_H
#define FLEXTRACE_SEGMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "replayer/engine/plan.h"

struct candidate;

/* A position in the order of the starts, which is that of the records where starts are equal. */
struct position {
	uint64_t start_ns;
	uint64_t number; /* of the record in the trace */
};

struct segment_builder {
	struct schedule *schedule;
	uint32_t number; /* of the next segment, over all passes */
	struct position from; /* where it begins */
	uint64_t *numbers; /* in the trace, of the records of the segment that is built */
	struct candidate *candidates; /* by their starts */
	struct heard *heard; /* before each of the records; NULL: none of the trace has any */
	struct planner planner; /* where there is an order across threads */
};

int segment_builder_init(struct segment_builder *builder, struct schedule *schedule);
void segment_builder_free(struct segment_builder *builder);

/* Into its place, which nobody uses. False when a stop was asked for meanwhile: then there is none. */
bool segment_build(struct segment_builder *builder);

#endif

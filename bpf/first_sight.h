/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FLEXTRACE_FIRST_SIGHT_H
#define FLEXTRACE_FIRST_SIGHT_H

#include "drain.h"
#include "holes.h"
#include "residency.h"

/* What the kernel side does not tell of a file at its first sight: which of it was cached, and where it has holes. */
struct first_sight {
	struct residency residency;
	struct holes holes;
};

int first_sight_init(struct first_sight *first_sight);
/* Sees every FILE record as soon as it comes, with its path. */
void first_sight_meet(struct first_sight *first_sight, const struct pending *pending);
/* Sees every record before it is written, in the order of their ends. */
void first_sight_observe(struct first_sight *first_sight, const struct pending *pending);
/* Looks at files and writes what is known. All that ended until passed_ns was observed. */
void first_sight_round(struct first_sight *first_sight, struct writer *writer, uint64_t passed_ns);
/* Whether files are left to look at in the next round. */
bool first_sight_is_busy(const struct first_sight *first_sight);
/* The last round, when all records were observed. */
void first_sight_finish(struct first_sight *first_sight, struct writer *writer);
void first_sight_deinit(struct first_sight *first_sight);

#endif /* FLEXTRACE_FIRST_SIGHT_H */

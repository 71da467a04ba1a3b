/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns recorded start times into due times of this run, and says how late each operation began.
 *
 * Due times of --timing recorded are absolute, from the start of the pass: nothing is added up, so that a late operation
 * does not make the next one late. Those of --timing think follow the completion of what had ended before; so that late
 * wake-ups do not add up there either, a thread thinks that much less at the next occasions.
 */
#ifndef FLEXTRACE_DUE_H
#define FLEXTRACE_DUE_H

#include <stdbool.h>
#include <stdint.h>

union record;
struct worker;

/* What becomes of an operation that is behind the schedule. */
enum late_policy {
	LATE_CATCH_UP, /* it begins at once; the schedule stays */
	LATE_SKIP, /* a request beyond the limit is left out, and counted */
	LATE_SLIP, /* it begins at once, and what follows is due that much later */
};

enum { DRIFT_SAMPLES = 64 };

struct drift_sample {
	uint64_t due_ns, behind_ns;
};

/* How far behind the schedule the last operations of a thread were. */
struct drift {
	struct drift_sample samples[DRIFT_SAMPLES]; /* of operation i at i modulo */
	uint64_t count;
};

struct due {
	uint64_t at_ns; /* CLOCK_MONOTONIC; 0 where --timing sets no time */
	uint64_t owed_ns; /* --timing think: by how much later the operation begins than it should, by late wake-ups */
	uint64_t slip_ns; /* of it, what the schedule had slipped by */
};

struct due due_of(const struct worker *worker, const union record *record);

/* Waits until an operation is due, by worker->due, which it sets. Returns early after a stop. */
void due_wait(struct worker *worker, const union record *record);

/* Whether it is so late that it is to be left out. */
bool due_missed(const struct worker *worker, const union record *record);

/* Counts that an operation with a due time, which the order let begin at ready_ns, begins at start_ns. */
void due_started(struct worker *worker, struct due *due, uint64_t ready_ns, uint64_t start_ns);

#endif

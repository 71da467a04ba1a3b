/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns recorded start times into due times of this run, and says how late each operation began.
 *
 * Due times of --timing recorded are absolute, from the start of the pass: nothing is added up, so that a late operation
 * does not make the next one late. Those of --timing think follow the completion of what had ended before; so that late
 * wake-ups do not add up there either, a thread thinks that much less at the next occasions: for its own, and for those of
 * others that it had to wait for. Who was woken by another thread thinks as long after what that one had done, and not what
 * it had slept for it.
 */
#ifndef FLEXTRACE_DUE_H
#define FLEXTRACE_DUE_H

#include <stdbool.h>
#include <stdint.h>

struct operation;
struct pacer;
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
	uint64_t compute_ns; /* --timing think: of the time before it, how long the thread computes */
};

/* --timing think: what the thread was woken after has ended (schedule.h, wake_up). */
struct woken {
	uint64_t from_ns; /* recorded end of that; 0 = it was not woken so */
	uint64_t base_ns; /* its end here, less by how much later than it should it had begun */
	uint64_t slept_ns, awake_ns; /* as in wake_up */
};

/* By worker->woken. */
struct due due_of(const struct worker *worker, const union record *record);

/* Sleeps, and computes, until then. */
void due_pass(struct pacer *pacer, const struct due *due);

/* Waits until an operation is due, by worker->due, which it sets. Returns early after a stop. */
void due_wait(struct worker *worker, const union record *record);

/* Whether it is so late that it is to be left out. */
bool due_missed(const struct worker *worker, const union record *record);

/* When the order let an operation begin, and by how much later than it should what it waited for had begun. */
struct readiness {
	uint64_t at_ns;
	uint64_t owed_ns; /* --timing think */
};

/* Waits for the operation at a place; may return sooner. */
typedef void place_wait(struct worker *worker, uint64_t place, struct readiness *ready);

/* Computes for due.compute_ns, and sleeps, until due.at_ns; returns early after a stop. */
typedef void think(struct worker *worker, const struct due *due);

/* --timing think: waits until what the thread was woken after, before an operation, has ended; sets worker->woken. */
void due_wait_for_waker(struct worker *worker, const struct operation *operation, think *think, place_wait *wait,
			struct readiness *ready);

/* Counts that an operation with a due time begins at start_ns. */
void due_started(struct worker *worker, struct due *due, struct readiness ready, uint64_t start_ns);

#endif

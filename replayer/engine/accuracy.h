/* SPDX-License-Identifier: Apache-2.0 */
/* Turns what was counted of due times into a verdict on how well a run kept them. */
#ifndef FLEXTRACE_ACCURACY_H
#define FLEXTRACE_ACCURACY_H

#include "replayer/engine/worker.h"

enum verdict {
	VERDICT_UNTIMED, /* there were no due times */
	VERDICT_ON_TIME,
	VERDICT_LATE, /* this host began operations later than they could have begun */
	VERDICT_BEHIND, /* it did not as a rule, but what came before took too long to keep the schedule */
};

/* A run of which more than this share was late, or did not go as recorded, is not to be trusted. */
#define TRUSTED_SHARE 0.01

struct accuracy {
	enum verdict verdict;
	double late_share; /* operations later than run->late_after_ns after they were due and ready */
	double behind_share; /* later than that after they were due, or left out for that (--late skip) */
	uint64_t drift_ns; /* median of issue - due of the last operations of the schedule */
	uint64_t schedule_ns; /* from the first due time to the last, of a pass */
	double schedules_ns; /* of all passes together */
};

/* `tally` is that of all threads, `run` is over. */
struct accuracy accuracy_of(const struct run *run, const struct tally *tally);

const char *verdict_name(enum verdict verdict);

#endif

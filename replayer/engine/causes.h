/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns ids of operations that have ended, as the recording goes, into their places, for the calls that waited for them
 * because they were woken (WAKE records, bpf/trace_format.h).
 */
#ifndef FLEXTRACE_CAUSES_H
#define FLEXTRACE_CAUSES_H

#include <stdbool.h>
#include <stdint.h>

#include "replayer/engine/trace_reader.h"

struct cause {
	uint64_t id; /* 0 = free */
	uint64_t place; /* as in order.h */
	uint64_t end_ns; /* recorded */
};

struct causes {
	struct cause *slots; /* open addressing; NULL: nothing is waited for */
	uint64_t mask;
	uint64_t used;
	uint64_t recycled; /* as in order.h */
};

/* Of so many places. */
int causes_init(struct causes *causes, uint64_t places);
void causes_free(struct causes *causes);

/* False when there is no memory. */
bool causes_add(struct causes *causes, const struct cause *cause);

/* NULL where it is not known, or its memory was given away: it has completed then. */
const struct cause *causes_find(const struct causes *causes, uint64_t id);

/* What is known of the time before a call from the record before it; cause 0 = nothing. */
struct heard {
	uint64_t cause;
	uint64_t slept_ns; /* as in wake_record */
	uint64_t awake_ns; /* from the last wake-up on */
};

static inline struct heard heard_before(const union record *before, const union record *call)
{
	if (before->kind != RECORD_WAKE || before->wake.id != call->io.id)
		return (struct heard){0};
	uint64_t awake_ns = call->io.start_ns > before->wake.woken_ns ? call->io.start_ns - before->wake.woken_ns : 0;

	return (struct heard){before->wake.cause, before->wake.slept_ns, awake_ns};
}

#endif

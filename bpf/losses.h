/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FLEXTRACE_LOSSES_H
#define FLEXTRACE_LOSSES_H

#include "drain.h"
#include "tracer.h"
#include "writer.h"

enum { GAP_NO_CPU = 0xffff }; /* lost by the recorder itself, for lack of memory */

/* How far the losses have been entered into the trace. */
struct losses {
	struct loss *now, *before; /* [kind * CPUs + cpu] */
	uint64_t counted; /* counters_losses_counted when they were read last */
	uint64_t here_before[TRACE_KINDS_MAX];
	uint64_t polled_ns; /* when the last round read the counters; what it did not count was lost after that */
	uint64_t sum;
};

/* The GAP records of one round, at most. */
static inline uint64_t losses_bytes_max(int cpus)
{
	return (uint64_t)TRACE_KINDS_MAX * cpus * TRACE_RECORD_BYTES;
}

int losses_init(struct losses *losses, const struct tracer *tracer);
/* Enters what was lost since the last time: GAP records and header.lost. 0 or a negative errno. */
int losses_poll(struct losses *losses, const struct tracer *tracer, const struct drain *drain, struct writer *writer);
void losses_deinit(struct losses *losses);

#endif /* FLEXTRACE_LOSSES_H */

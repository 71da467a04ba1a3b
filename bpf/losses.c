// SPDX-License-Identifier: Apache-2.0
/*
 * Turns counts of lost records into GAP records: one for each round, CPU and kind, so that the trace says when it lost.
 */
#include "losses.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "counters.h"

int losses_init(struct losses *losses, const struct tracer *tracer)
{
	size_t count = (size_t)TRACE_KINDS_MAX * tracer->cpu_count;
	*losses = (struct losses){
		.now = calloc(count, sizeof(struct loss)),
		.before = calloc(count, sizeof(struct loss)),
		.polled_ns = monotonic_ns(),
	};
	return losses->now && losses->before ? 0 : -ENOMEM;
}

static void enter(struct losses *losses, struct writer *writer, int kind, int cpu, uint64_t count, uint64_t after_ns,
		  uint64_t last_ns)
{
	struct gap_record gap = {
		.kind = RECORD_GAP,
		.lost_kind = kind,
		.cpu = cpu,
		/* The clock is read a moment before the loss is counted. */
		.start_ns = after_ns < last_ns ? after_ns : last_ns,
		.lost_count = count,
	};
	gap.duration_ns = last_ns - gap.start_ns;
	writer_append(writer, &gap);
	writer->header.lost[kind] += count;
	losses->sum += count;
}

/* What was counted since the last round was lost after that began to read, and after the last loss that it read. */
static void enter_counted(struct losses *losses, struct writer *writer, int kind, int cpu, size_t index)
{
	const struct loss *now = &losses->now[index], *before = &losses->before[index];
	uint64_t after_ns = before->last_ns > losses->polled_ns ? before->last_ns : losses->polled_ns;
	if (now->count != before->count)
		enter(losses, writer, kind, cpu, now->count - before->count, after_ns, now->last_ns);
}

/* What the programs have counted. 0 or a negative errno. */
static int poll_counted(struct losses *losses, const struct tracer *tracer, struct writer *writer)
{
	uint64_t counted = counters_losses_counted(tracer);
	if (counted == losses->counted)
		return 0;
	int error = counters_losses(tracer, losses->now);
	if (error)
		return error;
	for (int kind = 0; kind < TRACE_KINDS_MAX; kind++)
		for (int cpu = 0; cpu < tracer->cpu_count; cpu++)
			enter_counted(losses, writer, kind, cpu, (size_t)kind * tracer->cpu_count + cpu);
	losses->counted = counted;
	struct loss *before = losses->before;
	losses->before = losses->now;
	losses->now = before;
	return 0;
}

int losses_poll(struct losses *losses, const struct tracer *tracer, const struct drain *drain, struct writer *writer)
{
	uint64_t began_ns = monotonic_ns();
	int error = poll_counted(losses, tracer, writer);
	if (error)
		return error;
	for (int kind = 0; kind < TRACE_KINDS_MAX; kind++) {
		uint64_t here = drain->lost_here[kind] - losses->here_before[kind];
		losses->here_before[kind] += here;
		if (here)
			enter(losses, writer, kind, GAP_NO_CPU, here, losses->polled_ns, began_ns);
	}
	losses->polled_ns = began_ns;
	return 0;
}

void losses_deinit(struct losses *losses)
{
	free(losses->now);
	free(losses->before);
}

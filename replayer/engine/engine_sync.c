// SPDX-License-Identifier: Apache-2.0
// Turns the operations of one thread into synchronous calls, one after the other.
#include "replayer/engine/worker.h"

/* An operation of this thread that has completed. */
struct previous {
	bool any;
	uint64_t recorded_end_ns;
	uint64_t completed_ns;
};

/* Waits as --timing says. */
static void wait_due(struct worker *worker, const union record *record, const struct previous *previous)
{
	struct run *run = worker->run;
	uint64_t from_ns = run->schedule->first_start_ns;
	uint64_t base_ns = run->pass_start_ns;

	if (run->options->timing == TIMING_ASAP)
		return;
	if (run->options->timing == TIMING_THINK && previous->any) {
		from_ns = previous->recorded_end_ns;
		base_ns = previous->completed_ns;
	}
	if (record->io.start_ns <= from_ns)
		return;
	double wait_ns = (double)(record->io.start_ns - from_ns) / run->options->speed;
	/* Longer than 30 years is damage; it then waits until somebody stops it. */
	pacer_wait_until(&run->pacer, base_ns + (wait_ns < 1e18 ? (uint64_t)wait_ns : (uint64_t)1e18));
}

static void note_lateness(struct worker *worker, const union record *record)
{
	const struct run *run = worker->run;
	uint64_t since_first_ns = record->io.start_ns - run->schedule->first_start_ns;
	uint64_t due_ns = run->pass_start_ns + (uint64_t)((double)since_first_ns / run->options->speed);
	uint64_t now = now_ns();
	uint64_t late_ns = now > due_ns ? now - due_ns : 0;

	histogram_add(&worker->histograms[HISTOGRAM_LATENESS], late_ns);
	worker->tally.late += late_ns > run->late_after_ns;
}

void engine_sync_pass(struct worker *worker)
{
	struct run *run = worker->run;
	struct cursor *cursor = &worker->cursor;
	struct previous previous = {0};

	for (const struct operation *operation; !run_stopped(run) && (operation = cursor_next(cursor));) {
		const union record *record = operation->record;

		wait_due(worker, record, &previous);
		if (run->ordered)
			order_wait(&run->order, &worker->waiter, operation->wait_for);
		if (run_stopped(run)) {
			cursor_back(cursor);
			break;
		}
		if (run->options->timing == TIMING_RECORDED)
			note_lateness(worker, record);
		operation_replay(worker, record, (uint32_t)(operation - run->schedule->operations));
		if (run->options->timing == TIMING_THINK)
			previous = (struct previous){true, record_end_ns(record), now_ns()};
		cursor_complete(cursor, operation);
	}
}

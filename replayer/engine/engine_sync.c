// SPDX-License-Identifier: Apache-2.0
// Turns the operations of one thread into synchronous calls, one after the other.
#include "replayer/engine/first_touch.h"
#include "replayer/engine/trace_loss.h"

static void think_until(struct worker *worker, const struct due *due)
{
	due_pass(&worker->run->pacer, due);
}

static void wait_for(struct worker *worker, uint64_t place, struct readiness *ready)
{
	order_wait(&worker->run->order, &worker->waiter, place);
	if (worker->waiter.ready_ns > ready->at_ns)
		*ready = (struct readiness){worker->waiter.ready_ns, worker->waiter.owed_ns};
}

/* What --timing asap has no need of. */
static void wait_for_time(struct worker *worker, const struct operation *operation, struct readiness *ready)
{
	const union record *record = operation->record;

	if (record->kind == RECORD_IO)
		first_touch_prepare(worker, &record->io, operation_place(worker->run->schedule, operation));
	due_wait_for_waker(worker, operation, think_until, wait_for, ready);
	due_wait(worker, record);
}

/* Does one operation when it is due and in order, or leaves it out; nothing of it after a stop. */
static void take_turn(struct worker *worker, const struct operation *operation, action *act)
{
	struct run *run = worker->run;
	const union record *record = operation->record;
	struct readiness ready = {.at_ns = worker->completed_ns};

	trace_loss_meet(&record->kind);
	if (run->options->timing != TIMING_ASAP)
		wait_for_time(worker, operation, &ready);
	for (uint64_t place; operation_is_held(run->schedule, operation, &place) && !run_stopped(run);)
		wait_for(worker, place, &ready);
	if (run_stopped(run))
		return;
	if (worker->due.at_ns && due_missed(worker, record)) {
		tally_skip(&worker->tally, KIND_IO, SKIP_LATE, 1);
		worker->completed_ns = now_ns();
	} else {
		worker->completed_ns = act_in_time(worker, operation, ready, act);
	}
	worker->debt_ns = worker->due.owed_ns;
	worker->recorded_end_ns = record_end_ns(record);
	cursor_complete(&worker->cursor, operation, worker->completed_ns, worker->due.owed_ns);
}

void pass_in_turn(struct worker *worker, action *act)
{
	bool keeps_step = worker->run->lead.block_operations;

	for (const struct operation *operation;
	     !run_stopped(worker->run) && (operation = cursor_next(&worker->cursor));) {
		cursor_prefetch(&worker->cursor);
		if (keeps_step && lead_count(worker))
			lead_wait(worker);
		take_turn(worker, operation, act);
	}
}

void engine_sync_pass(struct worker *worker)
{
	pass_in_turn(worker, operation_replay);
}

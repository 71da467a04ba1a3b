// SPDX-License-Identifier: Apache-2.0
// Turns recorded start times into due times of this run, and says how late each operation began.
#include "replayer/engine/due.h"
#include "replayer/engine/worker.h"

/* For how much of its think time a thread had a processor. */
static double computed_of(double think_ns, uint8_t processor_share)
{
	if (processor_share <= PROCESSOR_SHARE_NONE)
		return 0;
	return think_ns * (processor_share - PROCESSOR_SHARE_NONE) / (PROCESSOR_SHARE_ALL - PROCESSOR_SHARE_NONE);
}

/* Recorded time between two operations, without what recording them, and the way into the kernel, took of it. */
static uint64_t without_recording(const struct worker *worker, uint64_t gap_ns)
{
	uint64_t recording_ns = worker->run->options->recording_ns;

	return gap_ns > recording_ns ? gap_ns - recording_ns : 0;
}

/* How much longer that is than all of the time. It is known in the mean of all operations: of others it is less. */
static uint64_t recording_beyond(const struct worker *worker, uint64_t gap_ns)
{
	uint64_t recording_ns = worker->run->options->recording_ns;

	return gap_ns && gap_ns < recording_ns ? recording_ns - gap_ns : 0;
}

/* Of the first operation of a thread it would be the share of a time that began before the trace. */
static double compute_ns_of(const struct worker *worker, const union record *record)
{
	if (!worker->run->options->computing || !worker->recorded_end_ns ||
	    record->io.start_ns <= worker->recorded_end_ns)
		return 0;
	uint64_t gap_ns = record->io.start_ns - worker->recorded_end_ns;
	double computed_ns = computed_of((double)gap_ns, record->io.processor_share);
	return (double)without_recording(worker, bounded_ns(computed_ns)) / worker->run->options->speed;
}

static struct due due_after_thinking(const struct worker *worker, const union record *record)
{
	const struct run *run = worker->run;
	const struct woken *woken = &worker->woken;
	double speed = run->options->speed;
	uint64_t start_ns = record->io.start_ns;
	uint64_t from_ns = worker->recorded_end_ns ? worker->recorded_end_ns : run->schedule->first_start_ns;
	uint64_t base_ns = worker->recorded_end_ns ? worker->completed_ns : run->pass_start_ns;
	uint64_t recorded_ns = start_ns > from_ns ? start_ns - from_ns : 0;
	uint64_t gap_ns = without_recording(worker, recorded_ns);
	uint64_t debt_ns = worker->debt_ns + bounded_ns((double)recording_beyond(worker, recorded_ns) / speed);
	double compute_ns = compute_ns_of(worker, record);
	struct due due = {0};

	if (woken->from_ns) {
		gap_ns -= woken->slept_ns < gap_ns ? woken->slept_ns : gap_ns;
		if (compute_ns > (double)woken->awake_ns / speed)
			compute_ns = (double)woken->awake_ns / speed;
	}
	double wait_ns = (double)gap_ns / speed;
	uint64_t repaid_ns = wait_ns < (double)debt_ns ? (uint64_t)wait_ns : debt_ns;

	due.owed_ns = debt_ns - repaid_ns;
	due.at_ns = base_ns + bounded_ns(wait_ns - (double)repaid_ns);
	if (woken->from_ns) {
		uint64_t then_ns = woken->base_ns +
				   bounded_ns((double)without_recording(worker, start_ns - woken->from_ns) / speed);

		/*
		 * A new thread follows who made it, whenever that was. It owes no more than what it begins after both
		 * its own time and that of the other one: the rest is paid by the time that it slept.
		 */
		if (then_ns > due.at_ns || !worker->recorded_end_ns) {
			due.at_ns = then_ns;
			due.owed_ns = 0;
		} else if (due.owed_ns > due.at_ns - then_ns) {
			due.owed_ns = due.at_ns - then_ns;
		}
	}
	/* What it owes it makes up for by sleeping less, as far as that goes. */
	due.compute_ns = bounded_ns(compute_ns);
	return due;
}

struct due due_of(const struct worker *worker, const union record *record)
{
	const struct run *run = worker->run;
	struct due due = {0};

	if (run->options->timing == TIMING_THINK)
		return due_after_thinking(worker, record);
	if (run->options->timing != TIMING_RECORDED)
		return due;
	uint64_t from_ns = run->schedule->first_start_ns;
	uint64_t gap_ns = record->io.start_ns > from_ns ? record->io.start_ns - from_ns : 0;

	due.slip_ns = atomic_load_explicit(&run->slip_ns, memory_order_relaxed);
	due.at_ns = run->pass_start_ns + due.slip_ns + bounded_ns((double)gap_ns / run->options->speed);
	return due;
}

/*
 * Before it goes to sleep, to be woken: it computes and sleeps as if nobody had to wake it, but for that sleep and what it
 * computed behind it.
 */
static void think_first(struct worker *worker, const union record *record, const struct wake_up *wake_up, think *think)
{
	double speed = worker->run->options->speed;
	double compute_ns = compute_ns_of(worker, record) - (double)wake_up->awake_ns / speed;

	if (compute_ns <= 0)
		return;
	uint64_t gap_ns = without_recording(worker, record->io.start_ns - worker->recorded_end_ns);
	uint64_t later_ns = wake_up->slept_ns + wake_up->awake_ns;
	uint64_t before_ns = bounded_ns((double)(gap_ns > later_ns ? gap_ns - later_ns : 0) / speed);
	uint64_t owed_ns = worker->debt_ns < before_ns ? worker->debt_ns : before_ns;
	struct due due = {.at_ns = worker->completed_ns + before_ns - owed_ns, .compute_ns = bounded_ns(compute_ns)};

	think(worker, &due);
}

void due_wait_for_waker(struct worker *worker, const struct operation *operation, think *think, place_wait *wait,
			struct readiness *ready)
{
	struct schedule *schedule = worker->run->schedule;
	const struct wake_up *wake_up = schedule->ended_ns ? operation_wake_up(schedule, operation) : NULL;

	worker->woken = (struct woken){0};
	if (!wake_up)
		return;
	think_first(worker, operation->record, wake_up, think);
	while (!order_completed(schedule->order, wake_up->place) && !run_stopped(worker->run))
		wait(worker, wake_up->place, ready);
	uint64_t ended_ns = schedule_ended_ns(schedule, wake_up->place);
	/* It may have ended so long ago that when is not known any more: then that matters no more. */
	if (ended_ns)
		worker->woken = (struct woken){.from_ns = wake_up->cause_end_ns,
					       .base_ns = ended_ns,
					       .slept_ns = wake_up->slept_ns,
					       .awake_ns = wake_up->awake_ns};
}

void due_pass(struct pacer *pacer, const struct due *due)
{
	if (due->compute_ns)
		pacer_compute_until(pacer, due->at_ns, due->compute_ns);
	else
		pacer_wait_until(pacer, due->at_ns);
}

void due_wait(struct worker *worker, const union record *record)
{
	struct pacer *pacer = &worker->run->pacer;

	worker->due = due_of(worker, record);
	if (!worker->due.at_ns)
		return;
	due_pass(pacer, &worker->due);
	/* While this thread waited, the schedule may have slipped. */
	for (struct due due; (due = due_of(worker, record)).at_ns != worker->due.at_ns && !run_stopped(worker->run);) {
		worker->due = due;
		due_pass(pacer, &due);
	}
}

bool due_missed(const struct worker *worker, const union record *record)
{
	const struct run_options *options = worker->run->options;

	/* Without an open or a rename, what follows would find other files. */
	return options->late == LATE_SKIP && options->timing == TIMING_RECORDED && record->kind == RECORD_IO &&
	       now_ns() > worker->due.at_ns + options->late_limit_ns;
}

/* Moves the due times of all threads so that this operation would have been on time. */
static void slip(struct run *run, uint64_t wanted_ns)
{
	uint64_t slip_ns = atomic_load(&run->slip_ns);

	while (slip_ns < wanted_ns && !atomic_compare_exchange_weak(&run->slip_ns, &slip_ns, wanted_ns))
		;
}

void due_started(struct worker *worker, struct due *due, struct readiness ready, uint64_t start_ns)
{
	struct run *run = worker->run;
	struct drift *drift = &worker->drift;
	uint64_t held_ns = ready.at_ns > due->at_ns ? ready.at_ns - due->at_ns : 0;
	uint64_t from_ns = due->at_ns + held_ns;
	uint64_t late_ns = start_ns > from_ns ? start_ns - from_ns : 0;
	uint64_t behind_ns = start_ns > due->at_ns ? start_ns - due->at_ns : 0;

	histogram_add(&worker->histograms[HISTOGRAM_LATENESS], late_ns);
	worker->tally.late += late_ns > run->late_after_ns;
	if (run->options->timing == TIMING_THINK)
		due->owed_ns += late_ns + (held_ns < ready.owed_ns ? held_ns : ready.owed_ns);
	if (run->options->timing != TIMING_RECORDED)
		return;
	histogram_add(&worker->histograms[HISTOGRAM_BEHIND], behind_ns);
	worker->tally.behind += behind_ns > run->late_after_ns;
	drift->samples[drift->count++ % DRIFT_SAMPLES] = (struct drift_sample){due->at_ns, behind_ns};
	if (run->options->late == LATE_SLIP && behind_ns > run->late_after_ns)
		slip(run, due->slip_ns + behind_ns);
}

uint64_t act_in_time(struct worker *worker, const struct operation *operation, struct readiness ready, action *act)
{
	uint32_t number = operation_place(worker->run->schedule, operation);

	if (!worker->due.at_ns) {
		act(worker, operation->record, number);
		return 0;
	}
	uint64_t begun_ns = now_ns();

	due_started(worker, &worker->due, ready, begun_ns);
	worker->called_ns = begun_ns;
	act(worker, operation->record, number);
	/* The next think time begins with the end of the call: what the engine does behind it is in that. */
	if (worker->run->options->timing == TIMING_THINK)
		worker->due.owed_ns += worker->called_ns - begun_ns;
	return worker->finished_ns > begun_ns ? worker->finished_ns : begun_ns;
}

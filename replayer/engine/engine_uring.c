// SPDX-License-Identifier: Apache-2.0
// Turns the operations of one thread into requests of an io_uring, as many at once as overlapped when recorded.
#include "replayer/engine/first_touch.h"
#include "replayer/engine/give_up.h"
#include "replayer/engine/ring.h"

/*
 * Which requests of a thread may be in flight together (docs/decisions/0010-engines-and-lateness.md):
 * - those that overlapped in the recording, as the interval order says (order.h), at most --depth of them;
 * - of a synthetic trace, which has no times, any --depth in a row.
 * File operations, and with calls_stay what was a call when recorded, are calls here too, in order with the others.
 * While this thread waits for anything, it takes in its completions: other threads may wait for them.
 */
#define DRAIN_NS_MAX (5ull * 1000 * 1000 * 1000) /* after a stop; then what does not come back is given up */
#define LAST_NS (UINT64_MAX - 1) /* no recorded time is later; UINT64_MAX marks a flight that is not in use */

void flight_finish(struct worker *worker, uint32_t index, int32_t result, uint64_t end_ns)
{
	struct ring *ring = worker->ring;
	struct flight *flight = &ring->flights[index];

	request_count(worker, &flight->request, result, end_ns);
	ring->in_flight--;
	flight->completed_ns = end_ns;
	request_release(worker, &flight->request);
	const struct operation *operation = flight->operation;
	uint64_t owed_ns = flight->request.due.owed_ns;
	if (worker->run->options->timing != TIMING_THINK)
		ring_give_back(ring, index);
	cursor_complete(&worker->cursor, operation, end_ns, owed_ns);
}

/* What follows a completed operation by its think time: the latest of those that had ended before. */
static void follow(struct worker *worker, uint64_t recorded_end_ns, uint64_t completed_ns, uint64_t owed_ns)
{
	if (recorded_end_ns > worker->recorded_end_ns)
		worker->recorded_end_ns = recorded_end_ns;
	if (completed_ns > worker->completed_ns) {
		worker->completed_ns = completed_ns;
		worker->debt_ns = owed_ns;
	}
}

/* With think times a flight is kept until an operation comes that started after its recorded end. */
static void retire(struct worker *worker, uint64_t start_ns)
{
	struct ring *ring = worker->ring;

	for (uint32_t i = 0; i < ring->used; i++) {
		struct flight *flight = &ring->flights[i];

		if (ring->blocks_ns[i] > start_ns || !flight->completed_ns)
			continue;
		follow(worker, flight->recorded_end_ns, flight->completed_ns, flight->request.due.owed_ns);
		ring_give_back(ring, i);
	}
}

/* Whether one of this thread's own flights had ended before the operation started, and has not here. */
static bool is_blocked(const struct worker *worker, const union record *record)
{
	const struct ring *ring = worker->ring;

	if (worker->run->options->untimed)
		return record->kind != RECORD_IO && ring->in_flight;
	for (uint32_t i = 0; i < ring->used && ring->in_flight; i++) {
		if (ring->blocks_ns[i] <= record->io.start_ns && !ring->flights[i].completed_ns)
			return true;
	}
	return false;
}

/* Hands over what is prepared, or waits for what is under way. */
static void get_on(struct worker *worker)
{
	if (worker->ring->batch_count)
		ring_submit(worker);
	else
		ring_wait(worker, UINT64_MAX);
}

/* Waits until this thread's own flights let the operation begin. Sets *ready when that took a while. */
static void wait_own(struct worker *worker, const union record *record, struct readiness *ready)
{
	struct ring *ring = worker->ring;

	while (!run_stopped(worker->run) && (ring->in_flight >= ring->depth || is_blocked(worker, record))) {
		get_on(worker);
		*ready = (struct readiness){.at_ns = worker->finished_ns};
	}
	if (worker->run->options->timing != TIMING_THINK)
		return;
	retire(worker, record->io.start_ns);
	/* Completed ones that overlap all that follows fill the table: no think time will follow them. */
	if (!ring->free_count && ring->used == ring->depth)
		retire(worker, LAST_NS);
}

static void ring_wait_due(struct worker *worker, const union record *record)
{
	struct pacer *pacer = &worker->run->pacer;
	bool spinning = false;

	worker->due = due_of(worker, record);
	if (!worker->due.at_ns)
		return;
	for (uint64_t now; (now = now_ns()) < worker->due.at_ns && !run_stopped(worker->run);) {
		uint64_t left_ns = worker->due.at_ns - now;

		ring_submit(worker);
		if (!worker->ring->in_flight) {
			due_pass(pacer, &worker->due);
		} else if (left_ns > pacer->margin_ns) {
			ring_wait(worker, worker->due.at_ns - pacer->margin_ns);
		} else if (spinning || (spinning = pacer_may_spin(pacer))) {
			pacer_pause(pacer);
			ring_reap(worker);
		} else {
			ring_wait(worker, worker->due.at_ns);
		}
		worker->due = due_of(worker, record);
	}
	if (spinning)
		pacer_spun(pacer);
}

/* With what it has prepared under way. What comes back meanwhile is taken in: others may wait for it. */
static void think_until(struct worker *worker, const struct due *due)
{
	ring_submit(worker);
	if (!worker->ring->in_flight) {
		due_pass(&worker->run->pacer, due);
		return;
	}
	for (uint64_t until_ns = now_ns() + due->compute_ns; now_ns() < until_ns && !run_stopped(worker->run);) {
		ring_reap(worker);
		pause_processor();
	}
}

/* Waits for an operation of another thread; may return sooner. */
static void wait_place(struct worker *worker, uint64_t place, struct readiness *ready)
{
	struct order *order = &worker->run->order;
	struct order_waiter *waiter = &worker->waiter;

	ring_submit(worker);
	waiter->ready_ns = worker->finished_ns;
	waiter->owed_ns = 0;
	if (!worker->ring->in_flight) {
		order_wait(order, waiter, place);
	} else if (!order_completed(order, place)) {
		order_enlist(order, waiter, place, worker->ring->event);
		while (!atomic_load(&waiter->awake) && !run_stopped(worker->run)) {
			ring_arm_event(worker);
			ring_wait(worker, UINT64_MAX);
		}
	}
	if (waiter->ready_ns > ready->at_ns)
		*ready = (struct readiness){waiter->ready_ns, waiter->owed_ns};
}

static void wait_order(struct worker *worker, const struct operation *operation, struct readiness *ready)
{
	for (uint64_t place; operation_is_held(worker->run->schedule, operation, &place) && !run_stopped(worker->run);)
		wait_place(worker, place, ready);
}

static bool goes_by_ring(const struct run *run, const union record *record)
{
	/* An offset of -1 would mean the position of the descriptor; such damage gets the error of a call. */
	if (record->kind != RECORD_IO || (int64_t)record->io.offset < 0)
		return false;
	return !run->options->calls_stay || record->io.source == SOURCE_AIO || record->io.source == SOURCE_IO_URING ||
	       record->io.source == SOURCE_UNKNOWN || record->io.source == SOURCE_SYNTHETIC;
}

static void done_at_once(struct worker *worker, const struct operation *operation, uint64_t ended_ns)
{
	if (worker->run->options->timing == TIMING_THINK)
		follow(worker, record_end_ns(operation->record), ended_ns, worker->due.owed_ns);
	cursor_complete(&worker->cursor, operation, ended_ns, worker->due.owed_ns);
}

/*
 * A device that has run out of work waits while a batch is put together, so that the first direct requests go at once and
 * the batches grow with what is under way. What the page cache has is done within the call: the larger, the better.
 */
static bool batch_is_due(const struct ring *ring, const struct request *request)
{
	bool waits = request->class & CLASS_DIRECT && ring->in_flight - ring->batch_count < ring->batch_count;

	return waits || ring->batch_count == RING_BATCH;
}

/* Where there is no memory for one more beside those in flight, it waits for one of them. False after a stop. */
static bool take_flight(struct worker *worker, const struct request *request, uint32_t *index)
{
	struct ring *ring = worker->ring;
	bool refused = false;

	*index = ring_take(ring);
	while (!ring_has_memory(worker, *index, request)) {
		if (!refused)
			atomic_fetch_add(&worker->run->flights_refused, 1);
		refused = true;
		if (!ring->in_flight)
			break; /* nor without any: it fails */
		ring_give_back(ring, *index);
		get_on(worker);
		if (run_stopped(worker->run))
			return false;
		if (worker->run->options->timing == TIMING_THINK)
			retire(worker, LAST_NS);
		*index = ring_take(ring);
	}
	return true;
}

/* Nothing of it after a stop. */
static void launch(struct worker *worker, const struct operation *operation, const union record *record,
		   struct readiness ready)
{
	struct ring *ring = worker->ring;
	struct request request;
	uint32_t index;

	if (!request_prepare(worker, &record->io, operation_place(worker->run->schedule, operation), &request)) {
		done_at_once(worker, operation, now_ns());
		return;
	}
	if (!take_flight(worker, &request, &index)) {
		request_release(worker, &request);
		return;
	}
	struct flight *flight = &ring->flights[index];
	uint64_t end_ns = record_end_ns(record);

	flight->request = request;
	flight->recorded_end_ns = end_ns;
	flight->completed_ns = 0;
	flight->ready = ready;
	flight->operation = operation;
	/* The rule of schedule.c for equal times: nothing waits for what took no time and ended when it started. */
	ring->blocks_ns[index] = end_ns < LAST_NS ? end_ns + (record->io.duration_ns == 0) : LAST_NS;
	int error = ring_add(worker, index);
	if (error) {
		ring->in_flight++;
		request_start(worker, &flight->request, now_ns());
		flight_finish(worker, index, error, now_ns());
	} else if (batch_is_due(ring, &request)) {
		ring_submit(worker);
	}
}

/* Waits for threads that are behind, with nothing in flight whose end would be seen late. */
static void keep_step(struct worker *worker)
{
	if (!lead_count(worker))
		return;
	while (worker->ring->in_flight && !run_stopped(worker->run))
		get_on(worker);
	lead_wait(worker);
}

/* Storage that held the thread is no lateness of this host. */
static struct readiness when_free(const struct worker *worker, struct readiness ready)
{
	return ready.at_ns > worker->ring->free_ns ? ready : (struct readiness){.at_ns = worker->ring->free_ns};
}

/* Does one operation, or begins it, when it is due and in order, or leaves it out; nothing of it after a stop. */
static void take_turn(struct worker *worker, const struct operation *operation)
{
	struct run *run = worker->run;
	const union record *record = operation->record;
	struct readiness ready = {0};

	keep_step(worker);
	wait_own(worker, record, &ready);
	if (record->kind == RECORD_IO && !goes_by_ring(run, record))
		first_touch_prepare(worker, &record->io, operation_place(run->schedule, operation));
	due_wait_for_waker(worker, operation, think_until, wait_place, &ready);
	ring_wait_due(worker, record);
	wait_order(worker, operation, &ready);
	if (run_stopped(run))
		return;
	if (worker->due.at_ns && due_missed(worker, record)) {
		tally_skip(&worker->tally, KIND_IO, SKIP_LATE, 1);
		done_at_once(worker, operation, now_ns());
	} else if (goes_by_ring(run, record)) {
		launch(worker, operation, record, when_free(worker, ready));
	} else {
		ring_submit(worker);
		worker->ring->free_ns = act_in_time(worker, operation, when_free(worker, ready), operation_replay);
		done_at_once(worker, operation, worker->ring->free_ns);
		ring_reap(worker);
	}
}

/* Everything comes back before the pass ends, except after a stop what storage does not give back. */
static void drain(struct worker *worker)
{
	struct ring *ring = worker->ring;
	uint64_t give_up_ns = UINT64_MAX;

	ring_submit(worker);
	while (ring->in_flight && now_ns() < give_up_ns) {
		ring_wait(worker, UINT64_MAX);
		if (give_up_ns == UINT64_MAX && run_stopped(worker->run))
			give_up_ns = now_ns() + DRAIN_NS_MAX;
	}
	worker_returned(worker);
	ring_count_lost(worker, now_ns());
	worker->gave_up = ring->in_flight > 0;
	retire(worker, LAST_NS);
}

/* The next operation may need the memory of those in flight: then they complete first. */
static const struct operation *next_operation(struct worker *worker)
{
	while (worker->ring->in_flight && cursor_must_wait(&worker->cursor) && !run_stopped(worker->run))
		get_on(worker);
	return run_stopped(worker->run) ? NULL : cursor_next(&worker->cursor);
}

void engine_uring_pass(struct worker *worker)
{
	ring_start_pass(worker);
	for (const struct operation *operation; (operation = next_operation(worker));)
		take_turn(worker, operation);
	drain(worker);
}

// SPDX-License-Identifier: Apache-2.0
// Turns threads that storage does not give back after a stop into counts of what they had begun.
#include <unistd.h>

#include "replayer/engine/give_up.h"
#include "replayer/engine/ring.h"

void give_up_claim(struct worker *worker)
{
	uint32_t state = atomic_load(&worker->state);

	while (state != WORKER_GIVEN_UP) {
		if (atomic_compare_exchange_weak(&worker->state, &state, WORKER_COUNTS))
			return;
	}
	while (true)
		pause();
}

void count_undone(struct worker *worker)
{
	for (int kind = 0; kind < OPERATION_KINDS; kind++) {
		uint64_t told = worker->tally.records[kind] - worker->told_before[kind];

		tally_skip(&worker->tally, (enum operation_kind)kind, SKIP_STOPPED,
			   worker->plan->operations[kind] - told);
	}
}

/* In its place. Takes no lock, which it may hold. */
static void count_begun(struct worker *worker, uint64_t now)
{
	struct run *run = worker->run;
	const union record *called = atomic_load(&worker->called);

	if (called && called->kind == RECORD_IO) {
		request_count(worker, worker->request, -ETIMEDOUT, now);
	} else if (called) {
		tally_result(&worker->tally, KIND_FILEOP, called->fileop.result, -ETIMEDOUT);
		if (worker->sync_start_ns)
			busy_leave(&run->sync_time, worker->sync_start_ns, now);
		worker->finished_ns = now;
	}
	atomic_fetch_add(&run->unanswered, called != NULL);
	if (worker->ring)
		ring_count_lost(worker, now);
	count_undone(worker);
}

static void give_up_worker(struct worker *worker, uint64_t now)
{
	uint32_t runs = WORKER_RUNS, parked = WORKER_PARKED;

	if (atomic_compare_exchange_strong(&worker->state, &runs, WORKER_GIVEN_UP))
		count_begun(worker, now);
	else if (!atomic_compare_exchange_strong(&worker->state, &parked, WORKER_GIVEN_UP))
		return;
	worker->gave_up = true;
	atomic_fetch_sub(&worker->run->running, 1);
}

void give_up(struct run *run)
{
	uint64_t now = now_ns();

	for (uint32_t t = 0; t < run->schedule->thread_count; t++)
		give_up_worker(&run->workers[t], now);
}

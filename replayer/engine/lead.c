// SPDX-License-Identifier: Apache-2.0
// Turns counts of begun operations into waits of the threads that are ahead.
#include "replayer/engine/lead.h"

#include "replayer/engine/futex.h"
#include "replayer/engine/worker.h"

enum { IDLE_LOOKS_MAX = 40 }; /* in a row, SLICE_NS apart, at which nothing was under way */

void lead_init(struct lead *lead, uint32_t operations, uint32_t threads)
{
	*lead = (struct lead){.threads = threads};
	if (threads > 1 && operations)
		lead->block_operations = operations > LEAD_BLOCKS ? operations / LEAD_BLOCKS : 1;
}

/* The last thread to begin a block takes the slot for the block LEAD_SLOTS later, which no thread can be near yet. */
static void arrive(struct lead *lead, uint32_t block)
{
	_Atomic uint32_t *arrived = &lead->arrived[block % LEAD_SLOTS];

	if (atomic_fetch_add(arrived, 1) + 1 < lead->threads)
		return;
	atomic_store(arrived, 0);
	/* Blocks are begun in order by every thread, so that they become complete in order. Not where it was lifted. */
	uint32_t expected = block;

	if (atomic_compare_exchange_strong(&lead->begun, &expected, block + 1))
		futex_wake(&lead->begun, FUTEX_ALL);
}

static bool is_ahead(const struct lead_place *place, uint32_t begun)
{
	return begun != UINT32_MAX && place->block > (uint64_t)begun + LEAD_BLOCKS;
}

bool lead_count(struct worker *worker)
{
	struct lead *lead = &worker->run->lead;
	struct lead_place *place = &worker->lead;

	if (!lead->block_operations || place->left--)
		return false;
	place->left = lead->block_operations - 1;
	arrive(lead, place->block++);
	return is_ahead(place, atomic_load(&lead->begun));
}

/* Whether a thread that is behind can come nearer: a request is in flight, or another call is. */
static bool is_under_way(const struct run *run)
{
	bool under_way = atomic_load_explicit(&run->io_time.in_flight, memory_order_relaxed);

	for (uint32_t t = 0; t < run->schedule->thread_count && !under_way; t++)
		under_way = atomic_load_explicit(&run->workers[t].called, memory_order_relaxed);
	return under_way;
}

void lead_wait(struct worker *worker)
{
	struct run *run = worker->run;
	struct lead *lead = &run->lead;
	uint32_t begun;
	int idle = 0;

	pacer_asleep(&run->pacer);
	while (is_ahead(&worker->lead, begun = atomic_load(&lead->begun)) && !run_stopped(run)) {
		futex_sleep(&lead->begun, begun, SLICE_NS);
		/* All threads that wait wake up with each block: to ask all others each time would be the most that they do. */
		if (atomic_load(&lead->begun) != begun)
			continue;
		idle = is_under_way(run) ? 0 : idle + 1;
		if (idle == IDLE_LOOKS_MAX) {
			lead->given_up = true;
			lead_lift(lead);
		}
	}
	pacer_awake(&run->pacer);
}

void lead_lift(struct lead *lead)
{
	atomic_store(&lead->begun, UINT32_MAX);
	futex_wake(&lead->begun, FUTEX_ALL);
}

// SPDX-License-Identifier: Apache-2.0
// Turns the completions of operations into the starts of those that wait for them: the waiting and the waking.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "replayer/engine/futex.h"
#include "replayer/engine/order.h"

enum {
	SPIN_NS = 20 * 1000, /* about a sleep and a wake-up; a longer wait sleeps */
	LOOK_BACK = 16, /* ranks */
};

static uint64_t power_of_two(uint64_t least)
{
	uint64_t power = 1;

	while (power < least)
		power *= 2;
	return power;
}

int order_init(struct order *order, uint64_t places, uint64_t ranks, struct pacer *pacer)
{
	*order = (struct order){.pacer = pacer};
	if (places > ORDER_PLACES_MAX)
		return -E2BIG;
	for (int i = 0; i < ORDER_BEDS; i++)
		pthread_mutex_init(&order->beds[i].lock, NULL);
	order->places_mask = power_of_two(places) - 1;
	order->ranks_mask = power_of_two(ranks) - 1;
	order->marks = calloc(order->places_mask + 1, sizeof(*order->marks));
	order->ended = calloc(order->ranks_mask + 1, sizeof(*order->ended));
	return order->marks && order->ended ? 0 : -ENOMEM;
}

void order_reset(struct order *order)
{
	memset((void *)order->marks, MARK_OPEN, order->places_mask + 1);
	atomic_store(&order->frontier, 0);
	for (int i = 0; i < ORDER_BEDS; i++)
		order->beds[i].first = NULL;
}

void order_destroy(struct order *order)
{
	free((void *)order->marks);
	free((void *)order->ended);
}

static struct order_bed *bed_of(struct order *order, uint64_t slot)
{
	return &order->beds[slot % ORDER_BEDS];
}

/* Wakes everybody in a bed who waits for a slot, and maybe for what has it next: then it waits again. */
static void wake(struct order *order, uint64_t slot, uint64_t owed_ns)
{
	struct order_bed *bed = bed_of(order, slot);

	pthread_mutex_lock(&bed->lock);
	for (struct order_waiter **next = &bed->first; *next;) {
		struct order_waiter *waiter = *next;

		if (waiter->slot != slot) {
			next = &waiter->next;
			continue;
		}
		*next = waiter->next;
		int event = waiter->event;
		waiter->ready_ns = now_ns();
		waiter->owed_ns = owed_ns;
		/* From now on its memory may be used for the next waiting. */
		atomic_store(&waiter->awake, 1);
		if (event >= 0)
			eventfd_write(event, 1);
		else
			futex_wake(&waiter->awake, 1);
	}
	pthread_mutex_unlock(&bed->lock);
}

void order_enlist(struct order *order, struct order_waiter *waiter, uint64_t place, int event)
{
	uint64_t slot = place & order->places_mask;
	struct order_bed *bed = bed_of(order, slot);
	uint8_t mark = MARK_OPEN;

	waiter->slot = slot;
	waiter->event = event;
	atomic_store(&waiter->awake, 0);
	pthread_mutex_lock(&bed->lock);
	waiter->next = bed->first;
	bed->first = waiter;
	pthread_mutex_unlock(&bed->lock);
	/*
	 * Either this finds the operation completed, or who completes it finds the mark. Where the place was given to
	 * another operation meanwhile, the mark stands there in vain.
	 */
	if (!atomic_compare_exchange_strong(&order->marks[slot], &mark, MARK_AWAITED))
		mark = atomic_load(&order->marks[slot]);
	if (mark == MARK_COMPLETED || place < atomic_load(&order->recycled))
		wake(order, slot, 0);
}

static bool spin_for(struct order *order, uint64_t place)
{
	uint64_t until_ns = now_ns() + SPIN_NS;
	bool completed = false;

	while (!completed && pacer_has_room(order->pacer) && now_ns() < until_ns) {
		for (int i = 0; i < 16 && !completed; i++) {
			pause_processor();
			completed = order_completed(order, place);
		}
	}
	return completed;
}

void order_wait(struct order *order, struct order_waiter *waiter, uint64_t place)
{
	waiter->ready_ns = waiter->owed_ns = 0;
	if (order_completed(order, place))
		return;
	if (spin_for(order, place)) {
		struct order_bed *bed = bed_of(order, place & order->places_mask);

		waiter->ready_ns = now_ns();
		waiter->owed_ns = atomic_load_explicit(&bed->owed_ns, memory_order_relaxed);
		return;
	}
	order_enlist(order, waiter, place, -1);
	pacer_asleep(order->pacer);
	/* A stopped waiter stays in its bed: its thread ends, its memory outlives all threads. */
	while (!atomic_load(&waiter->awake) && !atomic_load_explicit(order->pacer->stop, memory_order_relaxed)) {
		futex_sleep(&waiter->awake, 0, order->pacer->slice_ns);
	}
	pacer_awake(order->pacer);
}

/*
 * A rank that is read here may just be given anew, when the frontier has passed it long ago: then the exchange fails. A
 * place may have been given to another operation: then the one meant here has completed in any case.
 */
static bool advance(struct order *order, uint64_t rank, uint64_t *place)
{
	uint64_t frontier = atomic_load(&order->frontier);

	while (frontier < rank) {
		*place = atomic_load_explicit(&order->ended[frontier & order->ranks_mask], memory_order_relaxed);
		if (order_completed(order, *place)) {
			if (atomic_compare_exchange_weak(&order->frontier, &frontier, frontier + 1))
				frontier++;
			continue;
		}
		uint64_t before = frontier;

		frontier = atomic_load(&order->frontier);
		if (frontier == before)
			return false;
	}
	return true;
}

bool order_reached(struct order *order, uint64_t rank, uint64_t *place)
{
	if (advance(order, rank, place))
		return true;
	/* With the last that ended most others will have completed: who waits for the first is woken once for each. */
	for (uint64_t last = rank; last-- > 0 && rank - last <= LOOK_BACK;) {
		uint64_t latest = atomic_load_explicit(&order->ended[last & order->ranks_mask], memory_order_relaxed);
		bool open = !order_completed(order, latest);

		/* Looked at last: a rank is given anew only when the frontier has passed it. */
		if (atomic_load(&order->frontier) > last)
			break;
		if (open) {
			*place = latest;
			break;
		}
	}
	return false;
}

void order_complete(struct order *order, uint64_t place, uint64_t owed_ns)
{
	uint64_t slot = place & order->places_mask;
	struct order_bed *bed = bed_of(order, slot);

	/* Mostly both are 0, and nothing that threads share is written. */
	if (atomic_load_explicit(&bed->owed_ns, memory_order_relaxed) != owed_ns)
		atomic_store_explicit(&bed->owed_ns, owed_ns, memory_order_relaxed);
	if (atomic_exchange(&order->marks[slot], MARK_COMPLETED) == MARK_AWAITED)
		wake(order, slot, owed_ns);
}

/* Keeps the ranks beyond the frontier as few as order_init() was told. */
static void keep_up(struct order *order)
{
	uint64_t place;

	advance(order, atomic_load(&order->ranked), &place);
}

void order_publish(struct order *order)
{
	atomic_store(&order->ranked, order->rank);
	keep_up(order);
}

void order_recycle(struct order *order, uint64_t until)
{
	uint64_t from = atomic_load(&order->recycled);

	atomic_store(&order->recycled, until);
	for (uint64_t place = from; place < until; place++)
		atomic_store_explicit(&order->marks[place & order->places_mask], MARK_OPEN, memory_order_release);
	keep_up(order);
}

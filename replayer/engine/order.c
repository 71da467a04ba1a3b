// SPDX-License-Identifier: Apache-2.0
// Turns the recorded starts and ends into the interval order of a replay: the waiting and the waking.
#include <errno.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "replayer/engine/order.h"

enum {
	SPIN_NS = 20 * 1000, /* about a sleep and a wake-up; a longer wait sleeps */
	SLICE_NS = 50 * 1000 * 1000, /* how long a stop may go unseen */
};

static uint64_t power_of_two(uint64_t least)
{
	uint64_t power = 1;

	while (power < least)
		power *= 2;
	return power;
}

int order_init(struct order *order, uint64_t places, uint64_t ranks, uint32_t threads, struct pacer *pacer)
{
	*order = (struct order){.pacer = pacer, .lock = PTHREAD_MUTEX_INITIALIZER};
	order->places_mask = power_of_two(places) - 1;
	order->ranks_mask = power_of_two(ranks) - 1;
	order->completed = calloc(order->places_mask + 1, sizeof(*order->completed));
	order->ended = calloc(order->ranks_mask + 1, sizeof(*order->ended));
	order->heap = calloc(threads ? threads : 1, sizeof(*order->heap));
	atomic_store(&order->next_target, UINT64_MAX);
	return order->completed && order->ended && order->heap ? 0 : -ENOMEM;
}

void order_reset(struct order *order)
{
	memset((void *)order->completed, 0, order->places_mask + 1);
	atomic_store(&order->frontier, 0);
	order->sleepers = 0;
}

void order_destroy(struct order *order)
{
	free((void *)order->completed);
	free((void *)order->ended);
	free(order->heap);
}

static void heap_push(struct order *order, struct order_waiter *waiter)
{
	uint32_t at = order->sleepers++;

	for (; at > 0 && order->heap[(at - 1) / 2]->target > waiter->target; at = (at - 1) / 2)
		order->heap[at] = order->heap[(at - 1) / 2];
	order->heap[at] = waiter;
}

static struct order_waiter *heap_pop(struct order *order)
{
	struct order_waiter *first = order->heap[0];
	struct order_waiter *last = order->heap[--order->sleepers];
	uint32_t at = 0;

	for (uint32_t child; (child = 2 * at + 1) < order->sleepers; at = child) {
		if (child + 1 < order->sleepers && order->heap[child + 1]->target < order->heap[child]->target)
			child++;
		if (order->heap[child]->target >= last->target)
			break;
		order->heap[at] = order->heap[child];
	}
	order->heap[at] = last;
	return first;
}

/* Wakes everybody whose target was reached. Under lock. */
static void wake_reached(struct order *order)
{
	/*
	 * next_target is published before the frontier is looked at, and order_complete() does it the other way round,
	 * so that either the sleeper sees the new frontier or the completing thread sees the sleeper.
	 */
	for (;;) {
		atomic_store(&order->next_target, order->sleepers ? order->heap[0]->target : UINT64_MAX);
		if (!order->sleepers || atomic_load(&order->frontier) < order->heap[0]->target)
			return;
		struct order_waiter *waiter = heap_pop(order);

		int event = waiter->event;
		waiter->ready_ns = now_ns();
		atomic_store(&waiter->awake, 1);
		if (event >= 0)
			eventfd_write(event, 1);
		else
			syscall(SYS_futex, &waiter->awake, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
	}
}

static bool spin_for(struct order *order, uint64_t target)
{
	bool reached = false;

	if (!pacer_may_spin(order->pacer))
		return false;
	uint64_t until_ns = now_ns() + SPIN_NS;
	do {
		for (int i = 0; i < 16 && !reached; i++) {
			pause_processor();
			reached = atomic_load(&order->frontier) >= target;
		}
	} while (!reached && now_ns() < until_ns);
	pacer_spun(order->pacer);
	return reached;
}

void order_enlist(struct order *order, struct order_waiter *waiter, uint64_t target, int event)
{
	waiter->target = target;
	waiter->event = event;
	atomic_store(&waiter->awake, 0);
	pthread_mutex_lock(&order->lock);
	heap_push(order, waiter);
	wake_reached(order);
	pthread_mutex_unlock(&order->lock);
}

void order_wait(struct order *order, struct order_waiter *waiter, uint64_t target)
{
	waiter->ready_ns = 0;
	if (order_reached(order, target))
		return;
	if (spin_for(order, target)) {
		waiter->ready_ns = now_ns();
		return;
	}
	order_enlist(order, waiter, target, -1);
	while (!atomic_load(&waiter->awake)) {
		struct timespec slice = {.tv_nsec = SLICE_NS};

		/* A stopped waiter stays in the heap: its thread ends, its memory outlives all threads. */
		if (atomic_load_explicit(order->pacer->stop, memory_order_relaxed))
			return;
		syscall(SYS_futex, &waiter->awake, FUTEX_WAIT_PRIVATE, 0, &slice, NULL, 0);
	}
}

static bool is_completed(struct order *order, uint64_t place)
{
	/* In this order: a mark that order_recycle() took away is not there only after `recycled` says so. */
	return atomic_load(&order->completed[place & order->places_mask]) || place < atomic_load(&order->recycled);
}

/*
 * A rank that is read here may just be given anew, when the frontier has passed it long ago: then the exchange fails. A
 * place may have been given to another operation: then the one meant here has completed in any case.
 */
static void advance(struct order *order)
{
	bool moved = false;
	uint64_t frontier = atomic_load(&order->frontier);

	while (frontier < atomic_load(&order->ranked) &&
	       is_completed(order,
			    atomic_load_explicit(&order->ended[frontier & order->ranks_mask], memory_order_relaxed))) {
		if (atomic_compare_exchange_weak(&order->frontier, &frontier, frontier + 1)) {
			frontier++;
			moved = true;
		}
	}
	if (!moved || frontier < atomic_load(&order->next_target))
		return;
	pthread_mutex_lock(&order->lock);
	wake_reached(order);
	pthread_mutex_unlock(&order->lock);
}

void order_complete(struct order *order, uint64_t place)
{
	atomic_store(&order->completed[place & order->places_mask], 1);
	advance(order);
}

void order_publish(struct order *order)
{
	atomic_store(&order->ranked, order->rank);
	advance(order);
}

void order_recycle(struct order *order, uint64_t until)
{
	uint64_t from = atomic_load(&order->recycled);

	atomic_store(&order->recycled, until);
	for (uint64_t place = from; place < until; place++)
		atomic_store_explicit(&order->completed[place & order->places_mask], 0, memory_order_release);
	advance(order);
}

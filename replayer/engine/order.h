/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns the recorded starts and ends into the interval order of a replay: an operation starts only when every operation
 * that ended before its recorded start has completed (docs/decisions/0002-interval-order.md).
 *
 * Operations are ranked by their recorded end. The frontier is the length of the longest prefix of that ranking that has
 * completed. Since "ended before B started" is a prefix of it, B waits for frontier >= wait_for.
 *
 * Operations have a place in memory, which others get after them. `place` below counts on from one to the next, so that
 * it is the place in memory modulo the number of such places, and all below `recycled` have completed.
 */
#ifndef FLEXTRACE_ORDER_H
#define FLEXTRACE_ORDER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "replayer/engine/timing.h"

struct order_waiter {
	_Atomic uint32_t awake; /* futex */
	uint64_t target;
	int event; /* eventfd that is written to instead of waking the futex; -1 = none */
	uint64_t ready_ns; /* when the target was reached; 0 = it was before the waiting began */
};

struct order {
	uint64_t places_mask;
	uint64_t ranks_mask;
	_Atomic uint8_t *completed; /* by place */
	_Atomic uint64_t *ended; /* place by rank */
	uint64_t rank; /* the next one */
	_Atomic uint64_t ranked; /* ranks below this are there to be looked at */
	_Atomic uint64_t recycled;
	_Atomic uint64_t frontier;
	_Atomic uint64_t next_target; /* smallest target that anybody sleeps for; UINT64_MAX when nobody sleeps */
	struct order_waiter **heap; /* sleepers, smallest target first; under lock */
	uint32_t sleepers;
	pthread_mutex_t lock;
	struct pacer *pacer;
};

/* `ranks`: how many may be given beyond the frontier. */
int order_init(struct order *order, uint64_t places, uint64_t ranks, uint32_t threads, struct pacer *pacer);
void order_reset(struct order *order); /* the same operations once more, while no thread runs */
void order_destroy(struct order *order);

/* Gives the next rank; by one thread, and seen by others from the next order_publish() on. */
static inline void order_rank(struct order *order, uint64_t place)
{
	atomic_store_explicit(&order->ended[order->rank++ & order->ranks_mask], place, memory_order_relaxed);
}

void order_publish(struct order *order);

/* All places from the last such call up to `until` have completed and may be used again. */
void order_recycle(struct order *order, uint64_t until);

/* Returns when the first `target` operations by recorded end have completed, or soon after a stop was asked for. */
void order_wait(struct order *order, struct order_waiter *waiter, uint64_t target);

/* Whether they have completed. */
static inline bool order_reached(const struct order *order, uint64_t target)
{
	return atomic_load(&order->frontier) >= target;
}

/* Does not wait: waiter->event becomes readable, and awake 1, when they have completed. Once at a time. */
void order_enlist(struct order *order, struct order_waiter *waiter, uint64_t target, int event);
void order_complete(struct order *order, uint64_t place);

#endif

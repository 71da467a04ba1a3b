/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns the recorded starts and ends into the interval order of a replay: an operation starts only when every operation
 * that ended before its recorded start has completed (docs/decisions/0002-interval-order.md).
 *
 * Operations are numbered by their recorded end (end_rank). The frontier is the length of the longest prefix of that
 * numbering that has completed. Since "ended before B started" is a prefix of it, B waits for frontier >= wait_for.
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
	uint32_t target;
	int event; /* eventfd that is written to instead of waking the futex; -1 = none */
	uint64_t ready_ns; /* when the target was reached; 0 = it was before the waiting began */
};

struct order {
	uint32_t count;
	_Atomic uint8_t *completed; /* by end_rank */
	_Atomic uint32_t frontier;
	_Atomic uint64_t next_target; /* smallest target that anybody sleeps for; UINT64_MAX when nobody sleeps */
	struct order_waiter **heap; /* sleepers, smallest target first; under lock */
	uint32_t sleepers;
	pthread_mutex_t lock;
	struct pacer *pacer;
};

int order_init(struct order *order, uint32_t operations, uint32_t threads, struct pacer *pacer);
void order_reset(struct order *order); /* before a pass, while no thread runs */
void order_destroy(struct order *order);

/* Returns when the first `target` operations by recorded end have completed, or soon after a stop was asked for. */
void order_wait(struct order *order, struct order_waiter *waiter, uint32_t target);

/* Whether they have completed. */
static inline bool order_reached(const struct order *order, uint32_t target)
{
	return atomic_load(&order->frontier) >= target;
}

/* Does not wait: waiter->event becomes readable, and awake 1, when they have completed. Once at a time. */
void order_enlist(struct order *order, struct order_waiter *waiter, uint32_t target, int event);
void order_complete(struct order *order, uint32_t end_rank);

#endif

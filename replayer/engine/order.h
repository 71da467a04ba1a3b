/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns the completions of operations into the starts of those that wait for them (docs/decisions/0002-order.md).
 *
 * An operation has a place in memory, which others get after it. `place` below counts on from one to the next, so that
 * it is the place in memory modulo the number of such places, and all below `recycled` have completed. Who completes an
 * operation marks its place, and looks for sleepers only where one has left its mark there before.
 *
 * For what waits for very many, operations are ranked by their recorded end. The frontier is the length of the longest
 * prefix of that ranking that has completed. Since "ended before B started" is a prefix of it, B waits for frontier >= its
 * length. Who waits moves the frontier on: completing an operation costs no more than its mark.
 */
#ifndef FLEXTRACE_ORDER_H
#define FLEXTRACE_ORDER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "replayer/engine/timing.h"

enum { ORDER_BEDS = 64, ORDER_PLACES_MAX = 1 << 30 };

/* What is known of the operation at a place. */
enum mark { MARK_OPEN, MARK_COMPLETED, MARK_AWAITED };

struct order_waiter {
	_Atomic uint32_t awake; /* futex */
	uint64_t slot; /* place in memory of what it waits for */
	int event; /* eventfd that is written to instead of waking the futex; -1 = none */
	uint64_t ready_ns; /* when that had completed; 0 = it had before the waiting began */
	uint64_t owed_ns; /* by how much later than it should it had begun, by late wake-ups; 0 = or nobody knows */
	struct order_waiter *next; /* in the same bed */
};

/* Sleepers, and what those who spin want to know, by the slot that they wait for modulo the number of beds. */
struct order_bed {
	_Alignas(64) pthread_mutex_t lock;
	struct order_waiter *first;
	_Atomic uint64_t owed_ns; /* as of order_waiter, of what was completed last */
};

struct order {
	uint64_t places_mask;
	uint64_t ranks_mask;
	_Atomic uint8_t *marks; /* enum mark, by slot */
	_Atomic uint64_t *ended; /* place by rank */
	uint64_t rank; /* the next one */
	_Atomic uint64_t ranked; /* ranks below this are there to be looked at */
	_Atomic uint64_t recycled;
	_Alignas(64) _Atomic uint64_t frontier;
	struct order_bed beds[ORDER_BEDS];
	struct pacer *pacer;
};

/* `ranks`: how many may be given beyond the frontier. */
int order_init(struct order *order, uint64_t places, uint64_t ranks, struct pacer *pacer);
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

static inline bool order_completed(const struct order *order, uint64_t place)
{
	/* In this order: a mark that order_recycle() took away is not there only after `recycled` says so. */
	return atomic_load(&order->marks[place & order->places_mask]) == MARK_COMPLETED ||
	       place < atomic_load(&order->recycled);
}

/* The low half of a place is enough to name it: those in memory, or just given away, are near to each other. */
static inline uint64_t order_whole_place(const struct order *order, uint32_t low)
{
	uint64_t near = atomic_load_explicit(&order->recycled, memory_order_relaxed);

	return near + (uint64_t)(int64_t)(int32_t)(low - (uint32_t)near);
}

/* Whether the first `rank` operations by recorded end have completed; else fills the place of one that has not. */
bool order_reached(struct order *order, uint64_t rank, uint64_t *place);

/* Returns when the operation at a place has completed, or sooner; soon after a stop was asked for. */
void order_wait(struct order *order, struct order_waiter *waiter, uint64_t place);

/* Does not wait: waiter->event becomes readable, and awake 1, when it has completed, or sooner. Once at a time. */
void order_enlist(struct order *order, struct order_waiter *waiter, uint64_t place, int event);
/* owed_ns: as of order_waiter. */
void order_complete(struct order *order, uint64_t place, uint64_t owed_ns);

#endif

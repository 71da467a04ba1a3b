/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns threads that each run as fast as they can into threads that keep step: none begins more than --lead operations
 * beyond the slowest.
 *
 * Processes that share a cache, each with data of its own, do not stay alike: one that is a little ahead has its data used
 * more often, keeps it in the cache, gets faster by that, and drives out the data of the others
 * (docs/decisions/0025-processes-keep-step.md).
 *
 * A thread's operations are counted in blocks. It begins a block when all others have begun the LEAD_BLOCKS-th before it.
 */
#ifndef FLEXTRACE_LEAD_H
#define FLEXTRACE_LEAD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct run;
struct worker;

enum {
	LEAD_BLOCKS = 8, /* the fewer, the further ahead of the slowest a thread that is not the fastest has to wait */
	LEAD_SLOTS = 2 * LEAD_BLOCKS, /* no two blocks that threads are at share one */
	LEAD_MAX = 1 << 20,
};

struct lead {
	uint32_t block_operations; /* 0 = every thread runs as it can */
	uint32_t threads;
	bool given_up; /* nothing was under way while a thread waited: the trace lets no thread keep step */
	_Atomic uint32_t arrived[LEAD_SLOTS]; /* threads that have begun the block of this slot */
	_Atomic uint32_t begun; /* futex: blocks that all threads have begun; UINT32_MAX once no one waits any more */
};

/* Of one thread. */
struct lead_place {
	uint32_t left; /* operations of the block at hand */
	uint32_t block; /* the next one */
};

void lead_init(struct lead *lead, uint32_t operations, uint32_t threads);

/* Counts an operation that is about to begin; true if the thread has to lead_wait() before it. */
bool lead_count(struct worker *worker);

/* Until the slowest thread has come near enough, or a stop. */
void lead_wait(struct worker *worker);

/* From now on nobody waits: a thread has come to its end. */
void lead_lift(struct lead *lead);

#endif

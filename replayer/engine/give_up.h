/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns threads that storage does not give back after a stop into counts of what they had begun, so that there is a result
 * without them. One that comes back later counts nothing any more.
 */
#ifndef FLEXTRACE_GIVE_UP_H
#define FLEXTRACE_GIVE_UP_H

#include "replayer/engine/request.h"

/* Tests have less. */
#ifndef ANSWER_SECONDS_MAX
#define ANSWER_SECONDS_MAX 60 /* after a stop: an fsync of gigabytes is right to take a while */
#endif

/* From now on this thread counts what it does, and nobody else; does not return where others have done so. */
void give_up_claim(struct worker *worker);

/* Before a call that storage may not answer. */
static inline void worker_waits(struct worker *worker)
{
	if (atomic_load_explicit(&worker->state, memory_order_relaxed) != WORKER_RUNS)
		atomic_store(&worker->state, WORKER_RUNS);
}

/* Before the first one for a record; `request` is that of an IO record. */
static inline void worker_calls(struct worker *worker, const union record *record, const struct request *request)
{
	worker->request = request;
	atomic_store_explicit(&worker->called, record, memory_order_relaxed);
	worker_waits(worker);
}

/* After whatever may have waited for storage, before anything of it is counted. */
static inline void worker_returned(struct worker *worker)
{
	if (run_stopped(worker->run))
		give_up_claim(worker);
}

/* And when it is counted. */
static inline void worker_called(struct worker *worker)
{
	atomic_store_explicit(&worker->called, NULL, memory_order_relaxed);
}

/* Counts what a stop left undone of this pass. */
void count_undone(struct worker *worker);

/* Gives up all threads that have not come to their end, and those that wait for them between two passes. */
void give_up(struct run *run);

#endif

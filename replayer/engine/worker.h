/* SPDX-License-Identifier: Apache-2.0 */
/* What one thread of a replay has of its own and what all share. */
#ifndef FLEXTRACE_WORKER_H
#define FLEXTRACE_WORKER_H

#include <pthread.h>

#include "replayer/engine/buffer.h"
#include "replayer/engine/busy_time.h"
#include "replayer/engine/descriptors.h"
#include "replayer/engine/feed.h"
#include "replayer/engine/files.h"
#include "replayer/engine/histogram.h"
#include "replayer/engine/image.h"
#include "replayer/engine/order.h"
#include "replayer/engine/schedule.h"
#include "replayer/engine/tally.h"
#include "replayer/engine/timing.h"
#include "replayer/engine/trace_reader.h"

enum histogram_kind { HISTOGRAM_READ, HISTOGRAM_WRITE, HISTOGRAM_SYNC, HISTOGRAM_LATENESS, HISTOGRAMS };

struct run_options {
	enum timing timing;
	bool recorded_order;
	bool loop;
	double speed;
	double max_seconds; /* 0 = no limit */
	uint64_t interval_ns; /* 0 = no interval lines */
};

struct worker;

struct run {
	const struct trace *trace;
	const struct file_table *table;
	struct schedule *schedule;
	const struct run_options *options;
	struct image *image;
	struct descriptors descriptors;
	struct feed feed;
	struct order order;
	struct pacer pacer;
	struct buffer write_data; /* read by all threads */
	struct busy_time io_time;
	struct busy_time sync_time;
	struct worker *workers;
	uint64_t late_after_ns; /* lateness from which an operation counts against the trust in a run */
	bool ordered; /* recorded order, and more than one thread to keep in it */
	bool undo; /* every pass starts from the same image: passes cannot overlap */
	bool again; /* there is another pass; set between the barriers */
	int error; /* of the undoing */
	uint64_t pass_start_ns;
	uint64_t elapsed_ns; /* of the passes that are over */
	pthread_barrier_t barrier;
	_Atomic uint32_t gate; /* futex: 0 closed, 1 open */
	_Atomic uint32_t running; /* futex: threads that are not done */
	atomic_bool *stop;
};

struct worker {
	/* What the sampler reads; written by this thread only. */
	_Alignas(64) _Atomic uint64_t bytes;
	_Atomic uint64_t requests;

	_Alignas(64) struct run *run;
	const struct thread_plan *plan;
	struct cursor cursor;
	struct buffer read_data;
	struct histogram *histograms; /* HISTOGRAMS */
	struct tally tally;
	struct order_waiter waiter;
	uint64_t finished_ns; /* end of the last operation */
	pthread_t thread;
};

static inline bool run_stopped(const struct run *run)
{
	return atomic_load_explicit(run->stop, memory_order_relaxed);
}

/* Takes a worker through the rest of its cursor, or up to a stop, by synchronous calls. */
void engine_sync_pass(struct worker *worker);

/* Repeats one IO or FILEOP record and counts its result. */
void operation_replay(struct worker *worker, const union record *record, uint32_t number);

/* Has everything ready that run_all() needs: buffers, and the first operations in their order. 0 or -errno. */
int run_prepare(struct run *run);

/* Runs the trace; the tallies and histograms of the workers are its result. 0 or -errno. */
int run_all(struct run *run);

/* Lets go of everything that these two made. */
void run_free(struct run *run);

#endif

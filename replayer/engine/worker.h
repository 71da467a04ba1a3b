/* SPDX-License-Identifier: Apache-2.0 */
/* What one thread of a replay has of its own and what all share. */
#ifndef FLEXTRACE_WORKER_H
#define FLEXTRACE_WORKER_H

#include <pthread.h>

#include "replayer/engine/buffer.h"
#include "replayer/engine/busy_time.h"
#include "replayer/engine/cache_state.h"
#include "replayer/engine/descriptors.h"
#include "replayer/engine/due.h"
#include "replayer/engine/feed.h"
#include "replayer/engine/files.h"
#include "replayer/engine/histogram.h"
#include "replayer/engine/image.h"
#include "replayer/engine/lead.h"
#include "replayer/engine/order.h"
#include "replayer/engine/others.h"
#include "replayer/engine/schedule.h"
#include "replayer/engine/tally.h"
#include "replayer/engine/timing.h"
#include "replayer/engine/trace_reader.h"

enum engine { ENGINE_AUTO, ENGINE_SYNC, ENGINE_URING, ENGINE_NULL };

enum histogram_kind {
	HISTOGRAM_READ, /* response times, from issue */
	HISTOGRAM_WRITE,
	HISTOGRAM_SYNC,
	HISTOGRAM_READ_DUE, /* the same from the due time: with the time that an operation waited for a late start */
	HISTOGRAM_WRITE_DUE,
	HISTOGRAM_SYNC_DUE,
	HISTOGRAM_LATENESS, /* issue - max(due, ready) */
	HISTOGRAM_BEHIND, /* issue - due */
	HISTOGRAMS,
};

struct run_options {
	enum engine engine; /* never ENGINE_AUTO once a run begins */
	bool calls_stay; /* io_uring only for what was asynchronous when recorded */
	bool untimed; /* the trace has an order, no times */
	uint32_t depth; /* requests in flight per thread; 0 = as recorded */
	uint32_t lead; /* operations that a thread may be ahead of the slowest; 0 = any number */
	enum late_policy late;
	uint64_t late_limit_ns; /* LATE_SKIP */
	enum timing timing;
	bool computing; /* TIMING_THINK: threads compute as long as recorded, and do not only sleep */
	uint64_t think_burst_ns; /* for so long before each sleep; 0 = half before and half after one sleep */
	uint64_t recording_ns; /* that recording and a call's own way took between two operations: is left out */
	uint32_t processors_max; /* of all threads, by a limit of the control group; 0 = those on which they may run */
	double others; /* processors that programs had which were not recorded: are kept busy; 0 = none */
	uint64_t others_burst_ns;
	enum order_kind order;
	bool loop;
	double speed;
	double max_seconds; /* 0 = no limit */
	uint64_t interval_ns; /* 0 = no interval lines */
};

struct worker;
struct request;

/* Who counts what a thread does (give_up.h). */
enum worker_state {
	WORKER_RUNS, /* itself, or who gives it up */
	WORKER_COUNTS, /* itself: it is not waiting for storage */
	WORKER_PARKED, /* nobody: between two passes it waits for the others */
	WORKER_GIVEN_UP,
};

struct run {
	const struct trace *trace;
	const struct file_table *table;
	struct schedule *schedule;
	const struct run_options *options;
	struct image *image;
	enum cache_state cache; /* before each pass, where passes are undone */
	struct file_ranges *ranges; /* for it */
	struct descriptors descriptors;
	struct feed feed;
	struct order order;
	struct pacer pacer;
	struct others others;
	struct lead lead;
	struct buffer write_data; /* read by all threads */
	uint64_t flights_bytes_max; /* of memory for requests in flight (read_memory.h) */
	_Atomic uint64_t flights_bytes; /* of it, in use */
	_Atomic uint64_t flights_refused; /* requests that found none, and waited for that of others */
	struct busy_time io_time;
	struct busy_time sync_time;
	_Atomic uint64_t slip_ns; /* of this pass, by which due times were moved */
	uint64_t slipped_ns; /* of the passes that are over */
	struct worker *workers;
	uint64_t late_after_ns; /* lateness from which an operation counts against the trust in a run */
	bool ordered; /* an order across threads, and more than one of them to keep it */
	bool undo; /* every pass starts from the same image: passes cannot overlap */
	bool again; /* there is another pass; set between the barriers */
	int error; /* of the undoing */
	_Atomic int ring_error; /* the first with which io_uring refused requests */
	bool gave_up; /* threads that storage has not given back after a stop: what they use stays until the process ends */
	bool trace_hangs; /* the one that reads the trace is among them */
	_Atomic uint64_t unanswered; /* their operations, as far as they had begun */
	_Atomic bool passing; /* a pass is not over */
	uint64_t pass_start_ns;
	uint64_t elapsed_ns; /* of the passes that are over */
	uint32_t passes; /* that are over; those that do not wait for each other are one */
	pthread_barrier_t barrier;
	_Atomic uint32_t gate; /* futex: 0 closed, 1 open */
	_Atomic uint32_t running; /* futex: threads that are not done */
	atomic_bool *stop;
};

/*
 * What a thread has moved, for the sampler, which must see the bytes of as many requests as it sees. The thread writes the
 * three in this order, and nobody else does: bytes between two equal numbers of requests are theirs.
 */
struct moved {
	_Atomic uint64_t requests_begun;
	_Atomic uint64_t bytes;
	_Atomic uint64_t requests;
};

struct worker {
	_Alignas(64) struct moved moved;

	_Alignas(64) struct run *run;
	const struct thread_plan *plan;
	struct cursor cursor;
	struct buffer read_data;
	uint32_t read_places; /* in it, 1 = always its beginning */
	struct buffer shared_read_data; /* first_touch.c; mapped before its first use */
	struct histogram *histograms; /* HISTOGRAMS */
	struct tally tally;
	struct order_waiter waiter;
	struct lead_place lead;
	struct ring *ring; /* NULL without io_uring */
	struct due due; /* of the operation at hand */
	struct woken woken; /* before it */
	uint64_t recorded_end_ns; /* recorded end of the operation that the next think time follows; 0 = none yet */
	uint64_t completed_ns; /* and its end here */
	uint64_t debt_ns; /* --timing think: by how much later than it should that operation began, by late wake-ups */
	struct drift drift;
	uint32_t in_flight_max;
	_Atomic uint32_t state; /* enum worker_state */
	const union record *_Atomic called; /* of the call that it makes; NULL = none */
	const struct request *request; /* of that, where it is an IO record */
	uint64_t called_ns; /* when it was made */
	uint64_t sync_start_ns; /* where it is a sync; 0 = none */
	uint64_t told_before[OPERATION_KINDS]; /* records, before this pass */
	bool gave_up; /* on requests that storage does not give back: the thread cannot end */
	uint64_t finished_ns; /* end of the last operation */
	pthread_t thread;
};

static inline bool run_stopped(const struct run *run)
{
	return atomic_load_explicit(run->stop, memory_order_relaxed);
}

/* Its calls have times between them, in which something can be done for the next. */
static inline bool options_have_times(const struct run_options *options)
{
	return options->timing != TIMING_ASAP && options->engine != ENGINE_NULL;
}

static inline bool has_times(const struct run *run)
{
	return options_have_times(run->options);
}

/* Over how many places writes of a kind of memory go, and so how long the buffer of their data is. */
static inline uint32_t write_places(const struct run *run, bool shared_memory)
{
	return shared_memory && has_times(run) ? WRITE_PLACES_SHARED : WRITE_PLACES;
}

/* Take a worker through the rest of its cursor, or up to a stop: by synchronous calls, by its ring, by doing nothing. */
void engine_sync_pass(struct worker *worker);
void engine_uring_pass(struct worker *worker);
void engine_null_pass(struct worker *worker);

/* The same for any way to do one operation, one after the other. */
typedef void action(struct worker *worker, const union record *record, uint32_t number);
void pass_in_turn(struct worker *worker, action *act);

/* Does one operation that may begin now. When its call has ended, where --timing sets times; else 0. */
uint64_t act_in_time(struct worker *worker, const struct operation *operation, struct readiness ready, action *act);

/* Repeats one IO or FILEOP record by a call and counts its result. */
void operation_replay(struct worker *worker, const union record *record, uint32_t number);

/* Has everything ready that run_all() needs: buffers, and the first operations in their order. 0 or -errno. */
int run_prepare(struct run *run);

/* Runs the trace; the tallies and histograms of the workers are its result. 0 or -errno. */
int run_all(struct run *run);

/* Lets go of everything that these two made, and closes the files. */
void run_free(struct run *run);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns prepared requests into completions by an io_uring of a thread's own: set-up, memory, submission in batches, and
 * waiting that ends. What may be in flight, and when, is for engine_uring.c to say.
 */
#ifndef FLEXTRACE_RING_H
#define FLEXTRACE_RING_H

#include <liburing.h>

#include "replayer/engine/request.h"

enum {
	RING_BATCH = 32, /* requests that one call hands to the kernel at most */
	RING_DEPTH_MAX = 4096, /* requests in flight per thread */
	RING_DESCRIPTORS = 2, /* that a ring takes */
	SUBMIT_BLOCKED_NS = 1000 * 1000, /* a call that takes longer did work that should have been asynchronous */
};

/* One request in flight, or, with think times, one that is done but that no think time follows yet. */
struct flight {
	struct request request;
	struct buffer read_data; /* mapped at its first use; registered ones lie in ring->registered */
	uint64_t touched_bytes; /* of it */
	uint64_t recorded_end_ns;
	uint64_t completed_ns; /* 0 while in flight */
	struct readiness ready;
	const struct operation *operation;
};

struct ring {
	struct io_uring uring;
	struct flight *flights;
	/* By flight in use: recorded starts from this time on wait for it. UINT64_MAX where nobody does. */
	uint64_t *blocks_ns;
	uint32_t *free; /* flights that were used and are not */
	uint32_t free_count;
	uint32_t used; /* flights that were ever used */
	uint32_t depth;
	uint32_t in_flight;
	uint32_t batch[RING_BATCH]; /* prepared and not handed to the kernel yet */
	uint32_t batch_count;
	struct buffer registered; /* read buffers of the first flights */
	uint32_t registered_flights;
	uint64_t stride_bytes; /* from one of them to the next */
	int read_index, write_index; /* of the registered buffers; -1 = none */
	int *registered_files; /* by descriptor, itself; -1 = not registered */
	uint32_t registered_file_count;
	uint64_t free_ns; /* end of the last call that held the thread: until then it could begin nothing */
	bool enabled;
	bool open;
	int event; /* eventfd by which the order of the run wakes this thread while it waits for its ring */
	uint64_t event_value;
	bool event_armed;
};

/* What io_uring_setup(2) says here: 0 or -errno. */
int ring_probe(void);

int ring_init(struct worker *worker);
/* With nothing in flight, to whose memory the kernel may still write. */
void ring_deinit(struct worker *worker);

/* By the worker's own thread, at the start of a pass. */
void ring_start_pass(struct worker *worker);

/* Takes a flight that is free; there is one. */
uint32_t ring_take(struct ring *ring);
void ring_give_back(struct ring *ring, uint32_t index);

/* Whether a flight, which is taken, has memory to read into, or gets it. */
bool ring_has_memory(struct worker *worker, uint32_t index, const struct request *request);

/* Puts a prepared request into the batch, which has room. -ENOMEM without that memory. */
int ring_add(struct worker *worker, uint32_t index);

/* Hands the batch to the kernel, and takes in what that completed. */
void ring_submit(struct worker *worker);

/* Takes in what has completed; returns whether something has. */
bool ring_reap(struct worker *worker);

/* Waits for a completion or the event until until_ns, but not so long that a stop goes unseen, and takes it in. */
void ring_wait(struct worker *worker, uint64_t until_ns);

/* The event becomes a completion. */
void ring_arm_event(struct worker *worker);

/* Counts requests that have not come back as failed, by ETIMEDOUT. */
void ring_count_lost(struct worker *worker, uint64_t now);

/* Called for every completion, by ring_reap(): engine_uring.c. */
void flight_finish(struct worker *worker, uint32_t index, int32_t result, uint64_t end_ns);

#endif

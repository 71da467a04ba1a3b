/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns requests to an io_uring into batches, each of whose requests is told at its end.
 */
#ifndef FLEXTRACE_RING_BATCH_H
#define FLEXTRACE_RING_BATCH_H

#include <liburing.h>

#include "told.h"

enum {
	QUEUE_MAX = 64,
	BLOCK_BYTES = 4096,
};

/* What will be told of a request at its end. */
struct request {
	const char *kind, *name;
	int64_t offset, asked, missed;
	unsigned int flags;
	int thread;
};

static struct request requests[QUEUE_MAX];
static int request_count; /* of the batch that is being made */
static char *buffer; /* aligned for direct I/O; each request has a block of it */

static char *block_of(int slot)
{
	return buffer + slot * BLOCK_BYTES;
}

/* The next request of the batch. */
static struct io_uring_sqe *next(struct io_uring *ring, const char *kind, const char *name, int64_t offset,
				 int64_t asked, unsigned int flags)
{
	struct io_uring_sqe *entry = io_uring_get_sqe(ring);
	struct request *request = &requests[request_count++];
	if (!entry)
		errx(1, "no entry in the submission queue");
	bool is_read = !strcmp(kind, "read");
	*request = (struct request){.kind = kind,
				    .name = name,
				    .offset = offset,
				    .asked = asked,
				    .flags = flags,
				    .thread = gettid(),
				    .missed = !is_read		  ? MISSED_UNKNOWN
					      : flags & IO_DIRECT ? asked
								  : 0};
	return entry;
}

/* After the io_uring_prep_* call, which clears the entry. */
static void tag(struct io_uring_sqe *entry, unsigned int entry_flags)
{
	io_uring_sqe_set_data(entry, &requests[request_count - 1]);
	io_uring_sqe_set_flags(entry, entry_flags);
}

static void add(struct io_uring *ring, const char *kind, const char *name, int descriptor, int64_t bytes,
		int64_t offset, unsigned int entry_flags, unsigned int flags)
{
	char *block = block_of(request_count);
	struct io_uring_sqe *entry = next(ring, kind, name, offset, bytes, flags | IO_POSITIONED);
	if (!strcmp(kind, "read"))
		io_uring_prep_read(entry, descriptor, block, bytes, offset);
	else
		io_uring_prep_write(entry, descriptor, block, bytes, offset);
	tag(entry, entry_flags);
}

static void tell_request(const struct request *request, int64_t result)
{
	tell(request->thread, request->kind, request->name, request->offset, request->asked, result, SOURCE_IO_URING,
	     request->flags,
	     request->missed == MISSED_UNKNOWN || result <= 0 ? MISSED_UNKNOWN
	     : request->missed > result			      ? result
							      : request->missed);
}

/* The result of one request, which is not told here. */
static inline int take_result(struct io_uring *ring)
{
	struct io_uring_cqe *event;
	if (io_uring_wait_cqe(ring, &event))
		errx(1, "io_uring_wait_cqe");
	int result = event->res;
	io_uring_cqe_seen(ring, event);
	return result;
}

/* Tells of every request of the batch at its end. */
static void take(struct io_uring *ring)
{
	for (int i = 0; i < request_count; i++) {
		struct io_uring_cqe *event;
		if (io_uring_wait_cqe(ring, &event))
			errx(1, "io_uring_wait_cqe");
		tell_request(io_uring_cqe_get_data(event), event->res);
		io_uring_cqe_seen(ring, event);
	}
	request_count = 0;
}

/* Submits the batch, and takes it. */
static inline void run(struct io_uring *ring)
{
	expect("io_uring_submit", io_uring_submit(ring), request_count);
	take(ring);
}

static void ring_init(struct io_uring *ring, unsigned int flags)
{
	int error = io_uring_queue_init(QUEUE_MAX, ring, flags);
	if (error)
		errx(1, "io_uring_queue_init: %s", strerror(-error));
}

#endif /* FLEXTRACE_RING_BATCH_H */

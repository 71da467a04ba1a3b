/* SPDX-License-Identifier: Apache-2.0 */
/* Turns an IO record into what is to be moved where, and its end into counts; how it is moved is the engine's. */
#ifndef FLEXTRACE_REQUEST_H
#define FLEXTRACE_REQUEST_H

#include <errno.h>

#include "replayer/engine/worker.h"

struct request {
	struct due due;
	uint64_t start_ns;
	uint64_t offset;
	const uint8_t *write_data;
	uint32_t bytes;
	uint32_t file; /* index into the table */
	int32_t recorded; /* result when recorded */
	int descriptor;
	uint8_t class;
	bool write;
};

/* Failures that lie in the caller's memory, descriptors or signals cannot and need not happen again. */
static inline bool is_caller_error(int32_t result)
{
	enum { KERNEL_RESTART = 512 }; /* ERESTARTSYS and what follows it: internal to the kernel */

	return result == -EFAULT || result == -EBADF || result == -EINTR || result == -EAGAIN ||
	       result <= -KERNEL_RESTART;
}

/* Where the data of a write comes from. */
static inline uint8_t *request_write_data(const struct run *run, const struct io_record *io, uint32_t number)
{
	uint32_t places = write_places(run, io->flags & IO_SHARED_MEMORY);
	return run->write_data.data + write_place(number, io->asked_bytes, places);
}

/* Why a record is not to be repeated, or SKIP_REASONS where it is. Fills the index of its file. */
enum skip_reason request_skip_reason(const struct run *run, const struct io_record *io, uint32_t *file);

/* Has the descriptor and the data ready. False when there is nothing to do; that is counted then. */
bool request_prepare(struct worker *worker, const struct io_record *io, uint32_t number, struct request *request);

/* From now on it is in flight; start_ns: 0 = now. */
void request_start(struct worker *worker, struct request *request, uint64_t start_ns);

/* It came to `result` (bytes or -errno) at end_ns, which is counted. */
void request_count(struct worker *worker, const struct request *request, int64_t result, uint64_t end_ns);

/* Gives its descriptor back, which may have to be closed. What had to be counted has been. */
void request_release(struct worker *worker, const struct request *request);

/* Counts bytes that were moved; the interval lines show them. */
static inline void count_moved(struct worker *worker, bool write, uint64_t bytes)
{
	struct tally *tally = &worker->tally;

	tally->bytes[write] += bytes;
	tally->requests[write]++;
	struct moved *moved = &worker->moved;
	uint64_t requests = tally->requests[0] + tally->requests[1];
	atomic_store_explicit(&moved->requests_begun, requests, memory_order_relaxed);
	atomic_store_explicit(&moved->bytes, tally->bytes[0] + tally->bytes[1], memory_order_release);
	atomic_store_explicit(&moved->requests, requests, memory_order_release);
}

#endif

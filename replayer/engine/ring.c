// SPDX-License-Identifier: Apache-2.0
// Turns prepared requests into completions by an io_uring of a thread's own.
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "replayer/engine/give_up.h"
#include "replayer/engine/message.h"
#include "replayer/engine/read_memory.h"
#include "replayer/engine/ring.h"

#define EVENT_DATA ((uint64_t)RING_DEPTH_MAX) /* user_data of the event; flights have smaller numbers */

enum {
	SUBMISSION_ENTRIES = 2 * RING_BATCH,
	COMPLETION_ENTRIES_MAX = 1024, /* where more are in flight, the kernel keeps what does not fit */
	/* In all threads. Registered memory is pinned: a confined run has that much less for its page cache. */
	REGISTERED_BYTES_MAX = 8 << 20,
	REGISTERED_FILES_MAX = 1024,
	RETRY_NS = 1000 * 1000,
};

/* Without EXT_ARG (Linux 5.11) waiting with a timeout would take an entry and a request of its own. */
static int set_up(struct io_uring *uring, unsigned int entries, uint32_t completions, unsigned int flags)
{
	struct io_uring_params params = {
		.flags = flags | IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP,
		.cq_entries = completions,
	};
	int error = io_uring_queue_init_params(entries, uring, &params);

	if (!error && !(params.features & IORING_FEAT_EXT_ARG)) {
		io_uring_queue_exit(uring);
		error = -ENOSYS;
	}
	return error;
}

int ring_probe(void)
{
	struct io_uring uring;
	int error = set_up(&uring, 2, 4, 0);

	if (!error)
		io_uring_queue_exit(&uring);
	return error;
}

/* With the cheapest way to run completions that the kernel knows: in the thread itself, when it asks (Linux 6.1, 5.19). */
static int set_up_best(struct io_uring *uring, uint32_t completions)
{
	static const unsigned int ways[] = {
		IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG |
			IORING_SETUP_SUBMIT_ALL,
		IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_SUBMIT_ALL,
		0,
	};
	int error = -EINVAL;

	for (size_t way = 0; way < sizeof(ways) / sizeof(ways[0]) && error == -EINVAL; way++)
		error = set_up(uring, SUBMISSION_ENTRIES, completions, ways[way] | IORING_SETUP_R_DISABLED);
	return error;
}

/* Registered buffers spare the kernel the look-up of their pages. Where it refuses (RLIMIT_MEMLOCK), it goes without. */
static int register_buffers(struct worker *worker, struct ring *ring)
{
	const struct run *run = worker->run;
	struct iovec vectors[2];
	unsigned int count = 0;
	uint64_t room_bytes = REGISTERED_BYTES_MAX / run->schedule->thread_count;

	ring->read_index = ring->write_index = -1;
	ring->stride_bytes = ((uint64_t)worker->plan->read_bytes_max + 4095) / 4096 * 4096;
	if (ring->stride_bytes) {
		uint64_t flights = room_bytes / ring->stride_bytes;

		ring->registered_flights = flights < ring->depth ? (uint32_t)flights : ring->depth;
		if (ring->registered_flights > RING_BATCH)
			ring->registered_flights = RING_BATCH;
	}
	int error = buffer_map(&ring->registered, ring->registered_flights * ring->stride_bytes, 0);
	if (error)
		return error;
	if (ring->registered_flights) {
		vectors[count] = (struct iovec){ring->registered.data, ring->registered.bytes};
		ring->read_index = (int)count++;
	}
	if (run->write_data.bytes && run->write_data.bytes <= REGISTERED_BYTES_MAX) {
		vectors[count] = (struct iovec){run->write_data.data, run->write_data.bytes};
		ring->write_index = (int)count++;
	}
	if (count && io_uring_register_buffers(&ring->uring, vectors, count) < 0)
		ring->read_index = ring->write_index = -1;
	return 0;
}

int ring_init(struct worker *worker)
{
	const struct run_options *options = worker->run->options;
	struct ring *ring = calloc(1, sizeof(*ring));

	if (!ring)
		return -ENOMEM;
	worker->ring = ring;
	ring->event = -1;
	ring->depth = options->depth ? options->depth : options->untimed ? 1 : RING_DEPTH_MAX;
	ring->flights = calloc(ring->depth, sizeof(*ring->flights));
	ring->blocks_ns = calloc(ring->depth, sizeof(*ring->blocks_ns));
	ring->free = calloc(ring->depth, sizeof(*ring->free));
	ring->registered_files = calloc(REGISTERED_FILES_MAX, sizeof(*ring->registered_files));
	if (!ring->flights || !ring->blocks_ns || !ring->free || !ring->registered_files)
		return -ENOMEM;
	ring->event = eventfd(0, EFD_CLOEXEC);
	if (ring->event < 0)
		return -errno;
	uint32_t completions = ring->depth + SUBMISSION_ENTRIES;
	int error =
		set_up_best(&ring->uring, completions < COMPLETION_ENTRIES_MAX ? completions : COMPLETION_ENTRIES_MAX);
	if (error)
		return error;
	ring->open = true;
	return register_buffers(worker, ring);
}

void ring_deinit(struct worker *worker)
{
	struct ring *ring = worker->ring;

	if (!ring)
		return;
	if (ring->open)
		io_uring_queue_exit(&ring->uring);
	if (ring->event >= 0)
		close(ring->event);
	for (uint32_t i = 0; i < ring->used; i++)
		buffer_unmap(&ring->flights[i].read_data);
	buffer_unmap(&ring->registered);
	free(ring->flights);
	free(ring->blocks_ns);
	free(ring->free);
	free(ring->registered_files);
	free(ring);
	worker->ring = NULL;
}

/* Registers the descriptors that stay open during the pass, each at its own number. Where refused, it goes without. */
static void register_files(struct worker *worker)
{
	struct ring *ring = worker->ring;
	struct descriptors *descriptors = &worker->run->descriptors;
	const struct file_table *table = worker->run->table;

	ring->registered_file_count = 0;
	if (table->count > REGISTERED_FILES_MAX)
		return;
	for (int i = 0; i < REGISTERED_FILES_MAX; i++)
		ring->registered_files[i] = -1;
	for (uint32_t id = 1; id < table->count; id++) {
		for (uint8_t class = 0; class < DESCRIPTOR_CLASSES && descriptors->files[id].pinned; class ++) {
			if (!(table->files[id].classes & (1u << class)))
				continue;
			int descriptor = descriptors_acquire(descriptors, id, class);

			descriptors_release(descriptors, id, class);
			if (descriptor < 0 || descriptor >= REGISTERED_FILES_MAX)
				continue;
			ring->registered_files[descriptor] = descriptor;
			if ((uint32_t)descriptor >= ring->registered_file_count)
				ring->registered_file_count = (uint32_t)descriptor + 1;
		}
	}
	if (ring->registered_file_count &&
	    io_uring_register_files(&ring->uring, ring->registered_files, ring->registered_file_count) < 0)
		ring->registered_file_count = 0;
}

void ring_start_pass(struct worker *worker)
{
	struct ring *ring = worker->ring;

	if (ring->enabled && !worker->run->undo)
		return;
	if (!ring->enabled) {
		io_uring_enable_rings(&ring->uring);
		io_uring_register_ring_fd(&ring->uring);
		ring->enabled = true;
	} else if (ring->registered_file_count) {
		io_uring_unregister_files(&ring->uring);
	}
	register_files(worker);
}

uint32_t ring_take(struct ring *ring)
{
	return ring->free_count ? ring->free[--ring->free_count] : ring->used++;
}

void ring_give_back(struct ring *ring, uint32_t index)
{
	ring->blocks_ns[index] = UINT64_MAX;
	ring->free[ring->free_count++] = index;
}

bool ring_has_memory(struct worker *worker, uint32_t index, const struct request *request)
{
	struct ring *ring = worker->ring;
	struct flight *flight = &ring->flights[index];

	if (request->write || index < ring->registered_flights)
		return true;
	if (read_memory_touch(worker->run, request->bytes, &flight->touched_bytes))
		return false;
	return flight->read_data.data || !buffer_map(&flight->read_data, ring->stride_bytes, 0);
}

int ring_add(struct worker *worker, uint32_t index)
{
	struct ring *ring = worker->ring;
	struct flight *flight = &ring->flights[index];
	const struct request *request = &flight->request;
	bool registered = index < ring->registered_flights;

	if (!ring_has_memory(worker, index, request))
		return -ENOMEM;
	uint8_t *data = registered ? ring->registered.data + index * ring->stride_bytes : flight->read_data.data;
	struct io_uring_sqe *entry = io_uring_get_sqe(&ring->uring);
	if (request->write && ring->write_index >= 0)
		io_uring_prep_write_fixed(entry, request->descriptor, request->write_data, request->bytes,
					  request->offset, ring->write_index);
	else if (request->write)
		io_uring_prep_write(entry, request->descriptor, request->write_data, request->bytes, request->offset);
	else if (registered && ring->read_index >= 0)
		io_uring_prep_read_fixed(entry, request->descriptor, data, request->bytes, request->offset,
					 ring->read_index);
	else
		io_uring_prep_read(entry, request->descriptor, data, request->bytes, request->offset);
	if ((uint32_t)request->descriptor < ring->registered_file_count &&
	    ring->registered_files[request->descriptor] >= 0)
		io_uring_sqe_set_flags(entry, IOSQE_FIXED_FILE);
	io_uring_sqe_set_data64(entry, index);
	ring->batch[ring->batch_count++] = index;
	ring->in_flight++;
	if (ring->in_flight > worker->in_flight_max)
		worker->in_flight_max = ring->in_flight;
	return 0;
}

/* Until the kernel has taken all entries. It refuses some for as long as it has no memory for more requests. */
static int hand_over(struct worker *worker)
{
	struct io_uring *uring = &worker->ring->uring;

	while (io_uring_sq_ready(uring)) {
		worker_waits(worker);
		int submitted = io_uring_submit(uring);

		if (submitted == -EAGAIN || submitted == -EBUSY)
			ring_wait(worker, now_ns() + RETRY_NS);
		else if (submitted < 0 && submitted != -EINTR)
			return submitted;
		if (submitted <= 0 && run_stopped(worker->run))
			return -ECANCELED;
	}
	return 0;
}

/* Of a request that the kernel has not taken before a stop: it counts among what that left undone. */
static void take_back(struct worker *worker, uint32_t index)
{
	struct request *request = &worker->ring->flights[index].request;

	busy_leave(&worker->run->io_time, request->start_ns, request->start_ns);
	request_release(worker, request);
	worker->ring->in_flight--;
	ring_give_back(worker->ring, index);
}

/* Those at the end of the batch that the kernel has not taken: without a stop they have failed, and with them the run. */
static void drop_rest(struct worker *worker, int error)
{
	struct ring *ring = worker->ring;
	uint32_t left = io_uring_sq_ready(&ring->uring);

	if (error != -ECANCELED) {
		int none = 0;

		complain("io_uring refused %u requests: %s; try --engine sync", left, strerror(-error));
		atomic_compare_exchange_strong(&worker->run->ring_error, &none, error);
		atomic_store(worker->run->stop, true);
	}
	while (left-- && ring->batch_count) {
		uint32_t index = ring->batch[--ring->batch_count];

		if (error == -ECANCELED)
			take_back(worker, index);
		else
			flight_finish(worker, index, error, now_ns());
	}
}

/* What has completed has done so by end_ns; 0 = by now. */
static bool take_in(struct worker *worker, uint64_t end_ns)
{
	struct ring *ring = worker->ring;
	struct io_uring_cqe *entries[RING_BATCH];
	unsigned int count = io_uring_peek_batch_cqe(&ring->uring, entries, RING_BATCH);
	struct {
		uint64_t data;
		int32_t result;
	} completions[RING_BATCH];

	if (!count)
		return false;
	worker_returned(worker);
	if (!end_ns)
		end_ns = now_ns();
	for (unsigned int i = 0; i < count; i++) {
		completions[i].data = entries[i]->user_data;
		completions[i].result = entries[i]->res;
	}
	io_uring_cq_advance(&ring->uring, count);
	for (unsigned int i = 0; i < count; i++) {
		if (completions[i].data == EVENT_DATA)
			ring->event_armed = false;
		else
			flight_finish(worker, (uint32_t)completions[i].data, completions[i].result, end_ns);
	}
	return true;
}

void ring_submit(struct worker *worker)
{
	struct ring *ring = worker->ring;

	if (!ring->batch_count)
		return;
	worker_returned(worker); /* from whatever it did before: these are counted now */
	uint64_t start_ns = now_ns();
	for (uint32_t i = 0; i < ring->batch_count; i++) {
		struct flight *flight = &ring->flights[ring->batch[i]];

		request_start(worker, &flight->request, start_ns);
		if (flight->request.due.at_ns)
			due_started(worker, &flight->request.due, flight->ready, start_ns);
	}
	int error = hand_over(worker);
	uint64_t end_ns = now_ns();
	uint64_t took_ns = end_ns - start_ns;
	worker_returned(worker);

	ring->free_ns = end_ns;
	if (error)
		drop_rest(worker, error);
	ring->batch_count = 0;
	worker->tally.submits++;
	if (took_ns > SUBMIT_BLOCKED_NS) {
		worker->tally.submits_blocked++;
		worker->tally.submits_blocked_ns += took_ns;
	}
	take_in(worker, end_ns);
}

bool ring_reap(struct worker *worker)
{
	return take_in(worker, 0);
}

void ring_wait(struct worker *worker, uint64_t until_ns)
{
	struct io_uring_cqe *entry;

	if (ring_reap(worker))
		return;
	uint64_t now = now_ns();
	if (until_ns <= now)
		return;
	uint64_t wait_ns = until_ns - now < SLICE_NS ? until_ns - now : SLICE_NS;
	struct __kernel_timespec timeout = {.tv_nsec = (long long)wait_ns};

	/* Whether it waited, was interrupted or timed out: there is something to take in, or the caller looks again. */
	worker_waits(worker);
	(void)io_uring_wait_cqe_timeout(&worker->ring->uring, &entry, &timeout);
	ring_reap(worker);
}

void ring_arm_event(struct worker *worker)
{
	struct ring *ring = worker->ring;

	if (ring->event_armed)
		return;
	struct io_uring_sqe *entry = io_uring_get_sqe(&ring->uring);
	io_uring_prep_read(entry, ring->event, &ring->event_value, sizeof(ring->event_value), 0);
	io_uring_sqe_set_data64(entry, EVENT_DATA);
	ring->event_armed = true;
	hand_over(worker);
}

void ring_count_lost(struct worker *worker, uint64_t now)
{
	struct ring *ring = worker->ring;

	for (uint32_t i = 0; i < ring->used && ring->in_flight; i++) {
		const struct flight *flight = &ring->flights[i];

		/* Those of a batch that was not handed over have not begun. */
		if (ring->blocks_ns[i] == UINT64_MAX || flight->completed_ns || !flight->request.start_ns)
			continue;
		request_count(worker, &flight->request, -ETIMEDOUT, now);
		atomic_fetch_add(&worker->run->unanswered, 1);
	}
}

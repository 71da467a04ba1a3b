// SPDX-License-Identifier: Apache-2.0
// Turns the page faults that a request had of its caller's memory into as many of the replay's.
#include <sys/mman.h>

#include "replayer/engine/first_touch.h"
#include "replayer/engine/request.h"

enum {
	PAGE_BYTES = 4096,
	/*
	 * What is written somebody has made, so its pages are there and only have to be mapped. A read fault maps the others
	 * of its 64 KiB as well (mm/memory.c, do_fault_around).
	 */
	PAGES_MAPPED_AT_ONCE = 16,
};

static uint64_t faults_of(const struct io_record *io)
{
	return io->flags >> IO_FAULTS_SHIFT;
}

static uint64_t pages_from(uint64_t offset, const struct io_record *io)
{
	return (offset + io_replay_bytes(io) + PAGE_BYTES - 1) / PAGE_BYTES;
}

/* A large buffer is one piece of memory many times, of which pages cannot be new. */
static bool is_shared(const struct worker *worker, const struct io_record *io)
{
	return io->op == IO_READ && io->flags & IO_SHARED_MEMORY && faults_of(io) && has_times(worker->run) &&
	       worker->plan->read_bytes_max <= BUFFER_WINDOW_BYTES;
}

uint8_t *first_touch_read_data(const struct worker *worker, const struct io_record *io, uint32_t number)
{
	const struct run *run = worker->run;
	bool reused = io->flags & IO_REUSED_MEMORY;
	uint8_t *place = is_shared(worker, io) && worker->shared_read_data.data
				 ? worker->shared_read_data.data
				 : worker->read_data.data + (reused ? 0 : read_place(number, worker->read_places));
	bool straddles = has_times(run) && faults_of(io) > pages_from(0, io);

	return straddles && !(class_chosen(run->table->class_choice, io->flags) & CLASS_DIRECT)
		       ? place + FIRST_TOUCH_STRADDLE_BYTES
		       : place;
}

void first_touch_prepare(struct worker *worker, const struct io_record *io, uint32_t number)
{
	const struct run *run = worker->run;
	bool write = io->op == IO_WRITE;

	if (!faults_of(io) || (!write && io->op != IO_READ) || !has_times(run))
		return;
	bool shared = is_shared(worker, io);
	/* Without it the read goes to private memory, as if it were not known to be shared. */
	if (shared && !worker->shared_read_data.data)
		shared = !buffer_map_shared(&worker->shared_read_data,
					    worker->plan->read_bytes_max + FIRST_TOUCH_STRADDLE_BYTES);
	uint8_t *data = write ? request_write_data(run, io, number) : first_touch_read_data(worker, io, number);
	uint64_t within = (uintptr_t)data % PAGE_BYTES, pages = pages_from(within, io);
	uint64_t wanted = faults_of(io) == IO_FAULTS_MAX ? pages : faults_of(io) * (write ? PAGES_MAPPED_AT_ONCE : 1);

	if (wanted > pages)
		wanted = pages;
	/* Shared pages have to leave its file, too: else they would be there, and only be mapped again. */
	madvise(data - within, wanted * PAGE_BYTES, shared ? MADV_REMOVE : MADV_DONTNEED);
	for (uint64_t page = wanted; shared && page < pages; page++)
		*(volatile uint8_t *)(data - within + page * PAGE_BYTES) = 0;
}

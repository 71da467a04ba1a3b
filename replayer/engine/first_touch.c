// SPDX-License-Identifier: Apache-2.0
// Turns the page faults that a request had of its caller's memory into as many of the replay's.
#include <sys/mman.h>

#include "replayer/engine/first_touch.h"

enum {
	PAGE_BYTES = 4096,
	/*
	 * What is written somebody has made, so its pages are there and only have to be mapped. A read fault maps the others
	 * of its 64 KiB as well (mm/memory.c, do_fault_around).
	 */
	PAGES_MAPPED_AT_ONCE = 16,
};

void first_touch_prepare(struct worker *worker, const struct io_record *io, uint32_t number)
{
	const struct run *run = worker->run;
	uint64_t faults = io->flags >> IO_FAULTS_SHIFT;
	uint64_t pages = (io_replay_bytes(io) + (uint64_t)PAGE_BYTES - 1) / PAGE_BYTES;

	bool write = io->op == IO_WRITE;

	if (!faults || (!write && io->op != IO_READ) || run->options->timing == TIMING_ASAP ||
	    run->options->engine == ENGINE_NULL)
		return;
	uint64_t wanted = faults == IO_FAULTS_MAX ? pages : faults * (write ? PAGES_MAPPED_AT_ONCE : 1);
	uint8_t *data = write ? run->write_data.data + write_place(number)
			      : worker->read_data.data + read_place(number, worker->read_places);

	madvise(data, (wanted < pages ? wanted : pages) * PAGE_BYTES, MADV_DONTNEED);
}

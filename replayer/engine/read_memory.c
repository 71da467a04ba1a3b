// SPDX-License-Identifier: Apache-2.0
// Turns what threads read at most into memory to read into, as far as the machine has it.
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "bpf/cleanup.h"
#include "replayer/engine/first_touch.h"
#include "replayer/engine/message.h"
#include "replayer/engine/read_memory.h"

static uint32_t places_of(const struct run_options *options, uint32_t threads, uint32_t read_bytes_max)
{
	uint64_t slack_bytes_max = READ_SLACK_BYTES_MAX / threads;
	uint32_t places = read_bytes_max && options_have_times(options) ? READ_PLACES : 1;

	while (places > 1 && (uint64_t)places * READ_PLACE_BYTES > slack_bytes_max)
		places /= 2;
	return places;
}

/* Of a thread that reads. */
static uint64_t bytes_of(uint32_t places, uint32_t read_bytes_max)
{
	return read_bytes_max ? read_bytes_max + (uint64_t)(places - 1) * READ_PLACE_BYTES + FIRST_TOUCH_STRADDLE_BYTES
			      : 0;
}

static uint64_t touched_of(uint64_t bytes)
{
	return bytes < BUFFER_WINDOW_BYTES ? bytes : BUFFER_WINDOW_BYTES;
}

/* With what may be swapped out; UINT64_MAX where the kernel does not say. */
static uint64_t available_bytes(void)
{
	_cleanup_fclose_ FILE *info = fopen("/proc/meminfo", "re");
	unsigned long long kib;
	uint64_t bytes = 0;
	char line[128];

	while (info && fgets(line, sizeof(line), info)) {
		if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1 || sscanf(line, "SwapFree: %llu kB", &kib) == 1)
			bytes += kib * 1024;
	}
	return bytes ? bytes : UINT64_MAX;
}

/* Requests of a thread that are in flight together, as far as that is known before they are. */
static uint64_t flights_of(const struct run_options *options, const struct thread_plan *plan)
{
	uint64_t requests = plan->operations[KIND_IO];

	if (options->engine != ENGINE_URING || !options->untimed || options->depth < 2)
		return 0;
	return options->depth < requests ? options->depth : requests;
}

int read_memory_check(const struct schedule *schedule, const struct run_options *options)
{
	uint64_t needed = 0, in_flight = 0, available = available_bytes();

	for (uint32_t t = 0; t < schedule->thread_count; t++) {
		const struct thread_plan *plan = &schedule->threads[t];
		uint32_t read_bytes_max = plan->read_bytes_max;

		needed += touched_of(
			bytes_of(places_of(options, schedule->thread_count, read_bytes_max), read_bytes_max));
		in_flight += flights_of(options, plan) * touched_of(read_bytes_max);
	}
	needed += in_flight;
	if (needed <= available)
		return 0;
	complain(
		"%u threads need %llu bytes of memory to read into, %llu are available, %llu are missing: %sreplay the trace in parts (flextrace cut), or where there is more memory",
		schedule->thread_count, (unsigned long long)needed, (unsigned long long)available,
		(unsigned long long)(needed - available), in_flight ? "give a smaller --depth, " : "");
	return -ENOMEM;
}

int read_memory_map(struct worker *worker)
{
	const struct run *run = worker->run;
	uint32_t read_bytes_max = worker->plan->read_bytes_max;
	struct buffer *data = &worker->read_data;

	worker->read_places = places_of(run->options, run->schedule->thread_count, read_bytes_max);
	int error = buffer_map(data, bytes_of(worker->read_places, read_bytes_max), 0);
	/* The first touch of a page is not the read's to pay for, nor the memory group's, which is joined later. */
	if (!error && data->bytes && run->options->engine != ENGINE_NULL)
		memset(data->data, 0, touched_of(data->bytes));
	return error;
}

void read_memory_share(struct run *run)
{
	run->flights_bytes_max = available_bytes();
}

int read_memory_touch(struct run *run, uint64_t bytes, uint64_t *touched_bytes)
{
	uint64_t touched = touched_of(bytes), more = touched - *touched_bytes;

	if (touched <= *touched_bytes)
		return 0;
	if (atomic_fetch_add(&run->flights_bytes, more) + more > run->flights_bytes_max) {
		atomic_fetch_sub(&run->flights_bytes, more);
		return -ENOMEM;
	}
	*touched_bytes = touched;
	return 0;
}

// SPDX-License-Identifier: Apache-2.0
// Turns a run that goes on into lines on stdout, and ends it at its time limit.
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "replayer/engine/device_traffic.h"
#include "replayer/engine/futex.h"
#include "replayer/engine/give_up.h"
#include "replayer/engine/watch.h"

enum {
	LOOK_NS = 1000 * 1000 * 1000, /* how long it may go unseen that nobody waits for the result any more */
	LOOKS_MAX = 1000, /* at a thread that moves on between two of them */
};

/* What was counted up to the last interval line. */
struct interval_totals {
	uint64_t bytes, requests;
	struct device_traffic traffic;
};

static void add_moved(const struct moved *moved, struct interval_totals *totals)
{
	uint64_t requests, bytes;
	int looks = 0;

	do {
		requests = atomic_load_explicit(&moved->requests, memory_order_acquire);
		bytes = atomic_load_explicit(&moved->bytes, memory_order_acquire);
	} while (atomic_load_explicit(&moved->requests_begun, memory_order_relaxed) != requests && ++looks < LOOKS_MAX);
	totals->requests += requests;
	totals->bytes += bytes;
}

static void print_device_counts(const struct device_counts *now, const struct device_counts *last)
{
	printf(", \"device_reads\": %llu, \"device_writes\": %llu, \"device_write_bytes\": %llu",
	       (unsigned long long)(now->reads - last->reads), (unsigned long long)(now->writes - last->writes),
	       (unsigned long long)(now->write_bytes - last->write_bytes));
}

static void print_interval(const struct run *run, uint64_t now, const struct device_counters *counters,
			   struct interval_totals *last)
{
	struct interval_totals totals = {.traffic = device_traffic_now(counters)};
	uint64_t pass_requests = 0;

	for (uint32_t t = 0; t < run->schedule->thread_count; t++) {
		add_moved(&run->workers[t].moved, &totals);
		pass_requests += run->workers[t].plan->operations[KIND_IO];
	}
	printf("{\"t_s\": %.6f, \"bytes\": %llu, \"requests\": %llu, \"requests_of_pass\": %llu", (double)now / 1e9,
	       (unsigned long long)(totals.bytes - last->bytes), (unsigned long long)(totals.requests - last->requests),
	       (unsigned long long)pass_requests);
	if (totals.traffic.account_known)
		printf(", \"device_read_bytes\": %llu, \"dirtied_bytes\": %llu",
		       (unsigned long long)(totals.traffic.read_bytes - last->traffic.read_bytes),
		       (unsigned long long)(totals.traffic.dirtied_bytes - last->traffic.dirtied_bytes));
	if (totals.traffic.device_known)
		print_device_counts(&totals.traffic.device, &last->traffic.device);
	puts("}");
	fflush(stdout);
	*last = totals;
}

/* The state of stdout: POLLOUT if a line finds room there, POLLERR if nobody reads it any more. */
static short output_state(void)
{
	struct pollfd output = {.fd = STDOUT_FILENO, .events = POLLOUT};

	return poll(&output, 1, 0) > 0 ? output.revents : 0;
}

void watch_run(struct run *run, uint64_t start_ns)
{
	uint64_t limit_ns =
		run->options->max_seconds > 0 ? start_ns + (uint64_t)(run->options->max_seconds * 1e9) : UINT64_MAX;
	uint64_t interval_ns = run->options->interval_ns;
	uint64_t next_ns = interval_ns ? start_ns + interval_ns : UINT64_MAX;
	uint64_t give_up_ns = UINT64_MAX;
	struct interval_totals totals = {0};
	__attribute__((cleanup(device_counters_close))) struct device_counters counters = {0};

	if (interval_ns) {
		device_counters_open(&counters, run->image->directory);
		totals.traffic = device_traffic_now(&counters);
	}
	for (uint32_t running; (running = atomic_load(&run->running));) {
		uint64_t now = now_ns(), until_ns = next_ns < limit_ns ? next_ns : limit_ns;

		if (until_ns > now + LOOK_NS)
			until_ns = now + LOOK_NS;
		if (until_ns > now)
			futex_sleep(&run->running, running, until_ns - now);
		now = now_ns();
		short output = output_state();

		if (now >= next_ns && atomic_load(&run->running)) {
			/* Who reads too slowly does not hold the run: what finds no room is part of the next line. */
			if (output & POLLOUT)
				print_interval(run, now - start_ns, &counters, &totals);
			/* When this thread came late by more than an interval, that one is longer. */
			next_ns += (now - next_ns) / interval_ns * interval_ns + interval_ns;
		}
		if (now >= limit_ns || output & POLLERR) {
			atomic_store(run->stop, true);
			limit_ns = UINT64_MAX;
		}
		if (run_stopped(run) && give_up_ns == UINT64_MAX)
			give_up_ns = now + ANSWER_SECONDS_MAX * 1000000000ull;
		if (now >= give_up_ns)
			give_up(run);
	}
}

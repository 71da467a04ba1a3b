// SPDX-License-Identifier: Apache-2.0
// Turns a schedule into running threads, one per recorded thread, pass after pass, watched by the main thread.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "replayer/engine/futex.h"
#include "replayer/engine/give_up.h"
#include "replayer/engine/message.h"
#include "replayer/engine/read_memory.h"
#include "replayer/engine/ring.h"
#include "replayer/engine/watch.h"

enum {
	STACK_BYTES = 128 << 10,
	START_DELAY_NS = 2 * 1000 * 1000, /* the first due time, so that threads are there when it comes */
};

static void run_pass(struct worker *worker)
{
	static void (*const passes[])(struct worker *) = {
		[ENGINE_SYNC] = engine_sync_pass,
		[ENGINE_URING] = engine_uring_pass,
		[ENGINE_NULL] = engine_null_pass,
	};

	memcpy(worker->told_before, worker->tally.records, sizeof(worker->told_before));
	atomic_store(&worker->state, WORKER_RUNS);
	cursor_start_pass(&worker->cursor);
	worker->recorded_end_ns = 0;
	worker->debt_ns = 0;
	worker->completed_ns = worker->run->pass_start_ns;
	passes[worker->run->options->engine](worker);
	give_up_claim(worker);
	count_undone(worker);
}

static void end_pass(struct run *run)
{
	uint64_t finished_ns = run->pass_start_ns;

	if (!atomic_exchange(&run->passing, false))
		return;
	for (uint32_t t = 0; t < run->schedule->thread_count; t++) {
		if (run->workers[t].finished_ns > finished_ns)
			finished_ns = run->workers[t].finished_ns;
	}
	run->elapsed_ns += finished_ns - run->pass_start_ns;
	run->slipped_ns += atomic_load(&run->slip_ns);
	run->passes++;
}

static void start_pass(struct run *run)
{
	if (run->ordered && !run->schedule->streams)
		order_reset(&run->order);
	run->pass_start_ns = now_ns();
	atomic_store(&run->passing, true);
	atomic_store(&run->slip_ns, 0);
	if (run->options->timing == TIMING_RECORDED)
		run->pass_start_ns += START_DELAY_NS;
}

/*
 * Between two passes, by one thread: the image, and what of it is cached, as before the first. Its time is not part of the
 * elapsed time.
 */
static void undo_pass(struct run *run)
{
	end_pass(run);
	run->again = !run_stopped(run);
	if (!run->again)
		return;
	if (run->options->engine != ENGINE_NULL) {
		descriptors_close_all(&run->descriptors);
		struct cache_report report; /* the result has the first one */
		int error = image_lay_out(run->image, run->table);

		if (!error)
			error = cache_apply(run->image, run->table, run->ranges, run->cache, &report);
		run->error = error == -EINTR ? 0 : error;
		run->again = !run->error && !run_stopped(run);
		if (run->error)
			atomic_store(run->stop, true); /* the thread that reads the trace waits for it */
		if (!run->again)
			return;
		descriptors_start_pass(&run->descriptors);
	}
	start_pass(run);
}

static void *work(void *argument)
{
	struct worker *worker = argument;
	struct run *run = worker->run;

	/* A recording of the replay tells by it which recorded thread this one repeats (replayer/checking/operation_pairs.py). */
	char name[16];
	snprintf(name, sizeof(name), "play %u", worker->plan->thread);
	prctl(PR_SET_NAME, name);
	while (!atomic_load(&run->gate))
		futex_sleep(&run->gate, 0, UINT64_MAX);
	run_pass(worker);
	if (run->undo) {
		while (true) {
			atomic_store(&worker->state, WORKER_PARKED);
			if (pthread_barrier_wait(&run->barrier) == PTHREAD_BARRIER_SERIAL_THREAD)
				undo_pass(run);
			pthread_barrier_wait(&run->barrier);
			give_up_claim(worker);
			if (!run->again)
				break;
			run_pass(worker);
		}
	} else {
		while (run->options->loop && !run_stopped(run))
			run_pass(worker);
	}
	lead_lift(&run->lead);
	pacer_asleep(&run->pacer);
	if (atomic_fetch_sub(&run->running, 1) == 1)
		futex_wake(&run->running, FUTEX_ALL);
	/* The kernel lets no thread end before its requests; the result does not wait for that. */
	if (worker->gave_up) {
		while (true)
			pause();
	}
	return NULL;
}

static int prepare_workers(struct run *run)
{
	const struct schedule *schedule = run->schedule;
	uint64_t slack_bytes = (uint64_t)write_places(run, schedule->writes_shared_memory) * WRITE_PLACE_BYTES;
	uint64_t write_bytes = schedule->write_bytes_max ? schedule->write_bytes_max + slack_bytes : 0;
	size_t histogram_bytes = HISTOGRAMS * sizeof(struct histogram);
	int error = buffer_map(&run->write_data, write_bytes, run->image->data_percent);

	run->workers = aligned_alloc(64, schedule->thread_count * sizeof(*run->workers));
	if (!run->workers)
		return -ENOMEM;
	memset(run->workers, 0, schedule->thread_count * sizeof(*run->workers));
	for (uint32_t t = 0; t < schedule->thread_count && !error; t++) {
		struct worker *worker = &run->workers[t];

		worker->run = run;
		worker->plan = &schedule->threads[t];
		worker->cursor = schedule_cursor(run->schedule, t);
		error = read_memory_map(worker);
		/* Mapped and not allocated: of each histogram only the few pages that are used are there. */
		void *histograms =
			mmap(NULL, histogram_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (histograms == MAP_FAILED)
			return -ENOMEM;
		worker->histograms = histograms;
		if (!error && run->options->engine == ENGINE_URING)
			error = ring_init(worker);
	}
	return error;
}

void run_free(struct run *run)
{
	for (uint32_t t = 0; run->workers && t < run->schedule->thread_count; t++) {
		ring_deinit(&run->workers[t]);
		buffer_unmap(&run->workers[t].read_data);
		buffer_unmap(&run->workers[t].shared_read_data);
		if (run->workers[t].histograms)
			munmap(run->workers[t].histograms, HISTOGRAMS * sizeof(struct histogram));
	}
	free(run->workers);
	run->workers = NULL;
	buffer_unmap(&run->write_data);
	feed_free(&run->feed);
	order_destroy(&run->order);
	descriptors_destroy(&run->descriptors);
}

static int start_threads(struct run *run, uint32_t *started)
{
	pthread_attr_t attributes;

	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, STACK_BYTES);
	int error = 0;
	for (*started = 0; *started < run->schedule->thread_count; ++*started) {
		struct worker *worker = &run->workers[*started];

		error = pthread_create(&worker->thread, &attributes, work, worker);
		if (error) {
			complain(
				"cannot start thread %u of %u: %s; raise the limits of processes (ulimit -u, or pids.max of the control group) and of mappings (sysctl vm.max_map_count)",
				*started + 1, run->schedule->thread_count, strerror(error));
			break;
		}
	}
	pthread_attr_destroy(&attributes);
	return -error;
}

static int prepare_schedule(struct run *run)
{
	struct schedule *schedule = run->schedule;

	run->ordered = run->options->order != ORDER_THREAD && schedule->thread_count > 1;
	const struct file_table *by_files = run->options->order == ORDER_RESOURCE ? run->table : NULL;
	int error = schedule_init(schedule, run->ordered ? &run->order : NULL, by_files, run->stop);
	if (error)
		return error;
	/* Ranks: of operations in memory, and of those before them that were carried on (plan.c). */
	uint64_t ranks = schedule->streams ? 2 * schedule->places : schedule->places;
	if (run->ordered && order_init(&run->order, schedule->places, ranks, &run->pacer)) {
		complain("no memory to keep the order of %llu operations; --order thread needs none",
			 (unsigned long long)schedule->places);
		return -ENOMEM;
	}
	if (run->options->timing == TIMING_THINK && schedule_note_ends(schedule)) {
		complain("no memory for when %llu operations end; --order thread needs none",
			 (unsigned long long)schedule->places);
		return -ENOMEM;
	}
	return feed_init(&run->feed, schedule, run->options->loop);
}

int run_prepare(struct run *run)
{
	const struct schedule *schedule = run->schedule;
	/* First, as it raises the limit of descriptors, of which rings need some. */
	int error = descriptors_init(&run->descriptors, run->table, run->image);

	if (error)
		return error;
	if (run->options->engine == ENGINE_URING)
		descriptors_reserve(&run->descriptors, RING_DESCRIPTORS * schedule->thread_count);
	error = prepare_workers(run);
	if (error) {
		complain("cannot have the buffers and queues of %u threads: %s%s%s", schedule->thread_count,
			 strerror(-error),
			 error == -ENOMEM ? "; if there is memory, raise sysctl vm.max_map_count" : "",
			 run->options->engine == ENGINE_URING ? "; --engine sync needs less" : "");
		return error;
	}
	error = prepare_schedule(run);
	if (error)
		return error;
	read_memory_share(run);
	run->io_time.shared = schedule->thread_count > 1 || run->options->engine == ENGINE_URING;
	run->sync_time.shared = schedule->thread_count > 1;
	/* Without anything to undo and any order to keep, no thread waits at the end of a pass for the slowest one. */
	run->undo = run->options->loop &&
		    (run->ordered || run->table->namespace_changes || run->options->timing != TIMING_ASAP);
	uint64_t span_ns = schedule->last_start_ns - schedule->first_start_ns;
	double gap_ns = schedule->count > 1 ? (double)span_ns / run->options->speed / (double)(schedule->count - 1) : 0;
	run->late_after_ns = gap_ns / 10 > 100e3 ? bounded_ns(gap_ns / 10) : 100 * 1000;
	atomic_store(&run->running, schedule->thread_count);
	return 0;
}

static int start_others(struct run *run)
{
	const struct run_options *options = run->options;

	if (!(options->others > 0))
		return 0;
	int error = others_init(&run->others, options->others, options->others_burst_ns);
	if (error)
		complain("cannot start threads that keep %g processors busy: %s; --computing alone needs none",
			 options->others, strerror(-error));
	return error;
}

int run_all(struct run *run)
{
	uint32_t started;

	pacer_init(&run->pacer, run->options->timing, run->schedule->thread_count, run->options->processors_max,
		   run->stop);
	run->pacer.burst_ns = run->options->think_burst_ns;
	lead_init(&run->lead, run->options->lead, run->schedule->thread_count);
	if (run->options->engine != ENGINE_NULL)
		descriptors_start_pass(&run->descriptors);
	if (run->undo)
		pthread_barrier_init(&run->barrier, NULL, run->schedule->thread_count);
	int error = start_others(run);
	if (error)
		return error;
	error = feed_start(&run->feed);
	if (error) {
		others_deinit(&run->others);
		return error;
	}
	error = start_threads(run, &started);
	if (error) {
		/* Those that wait at the gate find that the run is over. */
		run->undo = false;
		atomic_store(run->stop, true);
	}
	start_pass(run);
	uint64_t start_ns = run->pass_start_ns;
	atomic_store(&run->gate, 1);
	futex_wake(&run->gate, FUTEX_ALL);
	if (!error)
		watch_run(run, start_ns);
	for (uint32_t t = 0; t < started; t++) {
		run->gave_up |= run->workers[t].gave_up;
		if (!run->workers[t].gave_up)
			pthread_join(run->workers[t].thread, NULL);
	}
	others_deinit(&run->others);
	end_pass(run);
	/* Nothing that waits for the same storage, which may have the trace as well. */
	if (run->gave_up)
		return error;
	run->trace_hangs = !feed_join(&run->feed, ANSWER_SECONDS_MAX);
	run->gave_up = run->trace_hangs;
	if (run->undo)
		pthread_barrier_destroy(&run->barrier);
	return error;
}

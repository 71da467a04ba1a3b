// SPDX-License-Identifier: Apache-2.0
// Turns the records of a trace into what is known of its threads and times, and segments into what a thread does next.
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "replayer/engine/futex.h"
#include "replayer/engine/message.h"
#include "replayer/engine/schedule.h"

enum {
	THREADS_MAX = 32768,
	THREAD_SLOTS = 2 * THREADS_MAX, /* never more than half full */
};

static uint32_t *find_slot(const struct schedule *schedule, uint32_t thread)
{
	uint32_t at = thread * 2654435761u;

	for (;; at++) {
		uint32_t *slot = &schedule->thread_slots[at & (THREAD_SLOTS - 1)];

		if (!*slot || schedule->threads[*slot - 1].thread == thread)
			return slot;
	}
}

uint32_t schedule_thread(const struct schedule *schedule, uint32_t thread)
{
	return *find_slot(schedule, thread) - 1;
}

int schedule_survey_init(struct schedule *schedule, const struct trace *trace)
{
	*schedule = (struct schedule){.trace = trace, .first_start_ns = UINT64_MAX};
	schedule->thread_slots = calloc(THREAD_SLOTS, sizeof(*schedule->thread_slots));
	schedule->threads = calloc(THREADS_MAX, sizeof(*schedule->threads));
	schedule->blocks = calloc(trace->count / TRACE_BLOCK_RECORDS + 1, sizeof(*schedule->blocks));
	if (schedule->thread_slots && schedule->threads && schedule->blocks)
		return 0;
	complain("no memory for the threads of %s", trace->path);
	return -ENOMEM;
}

static struct thread_plan *find_or_add_thread(struct schedule *schedule, uint32_t thread)
{
	uint32_t *slot = find_slot(schedule, thread);

	if (!*slot) {
		if (schedule->thread_count == THREADS_MAX)
			return NULL;
		schedule->threads[schedule->thread_count].thread = thread;
		*slot = ++schedule->thread_count;
	}
	return &schedule->threads[*slot - 1];
}

int schedule_survey(struct schedule *schedule, uint64_t first, uint64_t count)
{
	struct block block = {.first_start_ns = UINT64_MAX};
	struct thread_plan *thread = NULL;

	for (const union record *record = &schedule->trace->records[first]; count; count--, record++) {
		schedule->wake_ups += record->kind == RECORD_WAKE;
		if (!record_is_operation(record))
			continue;
		if (!thread || thread->thread != record->io.thread)
			thread = find_or_add_thread(schedule, record->io.thread);
		if (!thread) {
			complain("%s has more than %d threads, which cannot be replayed at once: replay it in parts",
				 schedule->trace->path, THREADS_MAX);
			return -E2BIG;
		}
		bool io = record->kind == RECORD_IO;
		thread->operations[io ? KIND_IO : KIND_FILEOP]++;
		schedule->count++;
		if (record->io.start_ns < block.first_start_ns)
			block.first_start_ns = record->io.start_ns;
		if (record->io.start_ns > block.last_start_ns)
			block.last_start_ns = record->io.start_ns;
		if (!io)
			continue;
		uint32_t bytes = io_replay_bytes(&record->io);
		if (record->io.op == IO_READ && bytes > thread->read_bytes_max)
			thread->read_bytes_max = bytes;
		if (record->io.op == IO_WRITE && bytes > schedule->write_bytes_max)
			schedule->write_bytes_max = bytes;
		if (record->io.op == IO_WRITE && record->io.flags & IO_SHARED_MEMORY)
			schedule->writes_shared_memory = true;
	}
	if (block.first_start_ns < schedule->first_start_ns)
		schedule->first_start_ns = block.first_start_ns;
	if (block.last_start_ns > schedule->last_start_ns)
		schedule->last_start_ns = block.last_start_ns;
	schedule->blocks[schedule->block_count++] = block;
	return 0;
}

int schedule_init(struct schedule *schedule, struct order *order, const struct file_table *by_files,
		  const atomic_bool *stop)
{
	uint64_t records_max = order ? WHOLE_RECORDS_MAX / 2 : WHOLE_RECORDS_MAX;
	bool streams = schedule->trace->count > records_max;
	uint64_t segments = streams ? (schedule->count + SEGMENT_OPERATIONS - 1) / SEGMENT_OPERATIONS : 1;

	schedule->order = order;
	schedule->by_files = by_files;
	schedule->stop = stop;
	schedule->streams = streams;
	schedule->segments = (uint32_t)segments;
	schedule->places = streams ? OPERATIONS_KEPT : schedule->count;
	schedule->operations = calloc(schedule->places, sizeof(*schedule->operations));
	bool complete = schedule->operations;
	for (uint32_t i = 0; i < (streams ? SEGMENTS : 1); i++) {
		struct segment *segment = &schedule->kept[i];

		segment->operations = schedule->operations + (size_t)i * SEGMENT_OPERATIONS;
		segment->first = calloc(schedule->thread_count + 1, sizeof(*segment->first));
		segment->records = streams ? calloc(SEGMENT_RECORDS_MAX, sizeof(*segment->records)) : NULL;
		complete &= segment->first && (segment->records || !streams);
	}
	if (complete)
		return 0;
	complain("no memory for %llu operations of %s at once", (unsigned long long)schedule->places,
		 schedule->trace->path);
	return -ENOMEM;
}

int schedule_note_ends(struct schedule *schedule)
{
	if (!schedule->order || !schedule->wake_ups)
		return 0;
	schedule->ended_ns = calloc(schedule->places, sizeof(*schedule->ended_ns));
	return schedule->ended_ns ? 0 : -ENOMEM;
}

void schedule_free(struct schedule *schedule)
{
	for (uint32_t i = 0; i < SEGMENTS; i++) {
		free(schedule->kept[i].first);
		free(schedule->kept[i].records);
		free(schedule->kept[i].waits);
		free(schedule->kept[i].wake_ups);
	}
	free(schedule->operations);
	free(schedule->ended_ns);
	free(schedule->blocks);
	free(schedule->threads);
	free(schedule->thread_slots);
}

void segment_leave(struct segment *segment)
{
	if (atomic_fetch_sub(&segment->threads_left, 1) == 1)
		futex_wake(&segment->threads_left, FUTEX_ALL);
}

static bool is_built(struct schedule *schedule, uint32_t segment, bool wait)
{
	for (uint32_t built; (built = atomic_load(&schedule->built)) <= segment;) {
		if (!wait || atomic_load_explicit(schedule->stop, memory_order_relaxed))
			return false;
		futex_sleep(&schedule->built, built, SLICE_NS);
	}
	return true;
}

static void enter(struct cursor *cursor, uint32_t number)
{
	struct schedule *schedule = cursor->schedule;
	uint32_t place = number % SEGMENTS;
	struct segment *segment = &schedule->kept[place];

	cursor->segment = number;
	cursor->at = segment->operations + segment->first[cursor->thread];
	cursor->end = segment->operations + segment->first[cursor->thread + 1];
	cursor->open[place] = (uint32_t)(cursor->end - cursor->at);
	if (schedule->streams && !cursor->open[place])
		segment_leave(segment);
}

void cursor_start_pass(struct cursor *cursor)
{
	uint32_t next = cursor->schedule->streams ? cursor->segment + 1 : 0;

	if (is_built(cursor->schedule, next, true))
		enter(cursor, next);
}

bool cursor_advance(struct cursor *cursor, bool wait)
{
	while (cursor->at == cursor->end) {
		if (cursor_at_end_of_pass(cursor) || !is_built(cursor->schedule, cursor->segment + 1, wait))
			return false;
		enter(cursor, cursor->segment + 1);
	}
	return true;
}

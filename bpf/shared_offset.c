// SPDX-License-Identifier: Apache-2.0
/*
 * Finds the offset of calls on a shared file position where another call came in between (see file_position.bpf.h).
 *
 * Such a record says only: offset <= true offset <= offset + width. Every call that moved the position in between
 * overlaps it in time, and each call has a stretch of the file to itself. So the true offset is the lowest one in the
 * interval at which the call does not run into the stretch of a call on the same file that overlaps it in time.
 */
#include "shared_offset.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <unistd.h>

#include "cleanup.h"
#include "trace_format.h"

/*
 * How many records that do not overlap in time are passed in a row before the search gives up, in each direction. The
 * file is near the order of ends, so calls that overlap stand close together.
 */
enum { STRANGERS_MAX = 512 };

/* How many records are looked at for one offset, some ms: what takes more is given up. */
enum { VISITS_MAX = 1 << 20 };

/* After how many offsets it is looked whether somebody wants it to end. */
enum { STOP_LOOK = 64 };

/* Records in memory at a time; not a mapping, as not every file system lets a file be mapped for writing (9p). */
enum { WINDOW_RECORDS = 16384 };

struct window {
	int descriptor;
	int error; /* of the first access that failed; from then on there are no records */
	uint64_t record_count; /* of the file */
	uint64_t first, count; /* in memory */
	struct io_record *records;
	uint64_t visits_left; /* for the offset at hand; 0 = it is given up */
	size_t given_up;
};

static off_t place_of(uint64_t index)
{
	return TRACE_HEADER_BYTES + (off_t)index * TRACE_RECORD_BYTES;
}

/* The record, with neighbours on both sides; NULL beyond the ends of the file. Holds until the next call. */
static struct io_record *record_at(struct window *window, uint64_t index)
{
	if (window->error || index >= window->record_count)
		return NULL;
	if (index < window->first || index - window->first >= window->count) {
		uint64_t first = index > WINDOW_RECORDS / 2 ? index - WINDOW_RECORDS / 2 : 0;
		uint64_t left = window->record_count - first;
		uint64_t count = left < WINDOW_RECORDS ? left : WINDOW_RECORDS;
		ssize_t wanted = count * TRACE_RECORD_BYTES;
		ssize_t bytes = pread(window->descriptor, window->records, wanted, place_of(first));
		if (bytes != wanted) {
			window->error = bytes < 0 ? -errno : -EIO;
			return NULL;
		}
		window->first = first;
		window->count = count;
	}
	return &window->records[index - window->first];
}

static void write_record(struct window *window, uint64_t index, const struct io_record *record)
{
	struct io_record *here = record_at(window, index);
	if (!here)
		return;
	*here = *record;
	ssize_t bytes = pwrite(window->descriptor, record, TRACE_RECORD_BYTES, place_of(index));
	if (bytes != TRACE_RECORD_BYTES)
		window->error = bytes < 0 ? -errno : -EIO;
}

static bool overlaps_in_time(const struct io_record *a, const struct io_record *b)
{
	return a->start_ns <= b->start_ns + b->duration_ns && b->start_ns <= a->start_ns + a->duration_ns;
}

/* Whether the other call may have moved the position between the two times at which this call's was read. */
static bool may_interfere(const struct io_record *record, const struct io_record *other, bool other_is_resolved)
{
	if (other->kind != RECORD_IO || other->file != record->file || other->op != record->op || other->result <= 0)
		return false;
	if (other->flags & IO_OFFSET_INFERRED && !other_is_resolved)
		return false;
	/* Only calls of the same kind: a reader and an appender of one file usually have positions of their own. */
	return !(other->flags & IO_POSITIONED) || other->flags & IO_APPEND;
}

/*
 * End of the stretch of a call that [offset, offset + bytes) of this call runs into, or 0. Looks from the record towards
 * one end of the file: step is 1 or -1.
 */
static uint64_t occupied_until(struct window *window, const struct io_record *record, uint64_t index, int step,
			       uint64_t offset)
{
	const struct io_record *other;
	uint64_t strangers = 0;

	/* Below the first record the index wraps around, to beyond the last. */
	for (uint64_t i = index + step;
	     strangers < STRANGERS_MAX && window->visits_left && (other = record_at(window, i)); i += step) {
		window->visits_left--;
		if (!overlaps_in_time(record, other)) {
			strangers++;
			continue;
		}
		strangers = 0;
		/* They are resolved in the order of the file. */
		if (may_interfere(record, other, i < index) && offset < other->offset + other->result &&
		    other->offset < offset + record->result)
			return other->offset + other->result;
	}
	return 0;
}

static void resolve(struct window *window, uint64_t index, uint64_t visits_max)
{
	const struct io_record *here = record_at(window, index);
	if (!here)
		return;
	struct io_record record = *here;
	window->visits_left = visits_max;
	uint64_t lowest = record.offset, highest = lowest + record.missed_bytes, offset = lowest, until;
	while (offset <= highest && ((until = occupied_until(window, &record, index, -1, offset)) ||
				     (until = occupied_until(window, &record, index, 1, offset))))
		offset = until;
	window->given_up += !window->visits_left;
	record.offset = offset <= highest && window->visits_left ? offset : lowest;
	record.missed_bytes = TRACE_NOT_MEASURED_U32;
	write_record(window, index, &record);
}

static bool is_stopped(int stop)
{
	struct pollfd polled = {.fd = stop, .events = POLLIN};
	return poll(&polled, 1, 0) > 0;
}

int shared_offset_resolve(int descriptor, uint64_t record_count, const uint64_t *inferred, size_t inferred_count,
			  int stop, size_t *given_up)
{
	_cleanup_free_ struct io_record *records = malloc((size_t)WINDOW_RECORDS * TRACE_RECORD_BYTES);
	struct window window = {.descriptor = descriptor, .record_count = record_count, .records = records};
	if (!records)
		return -ENOMEM;
	uint64_t visits_max = VISITS_MAX;
	for (size_t i = 0; i < inferred_count && !window.error; i++) {
		if (i % STOP_LOOK == 0 && is_stopped(stop))
			visits_max = 0;
		resolve(&window, inferred[i], visits_max);
	}
	*given_up += window.given_up;
	return window.error;
}

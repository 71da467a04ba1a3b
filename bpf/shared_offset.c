// SPDX-License-Identifier: Apache-2.0
/*
 * Finds the offset of calls on a shared file position where another call came in between (see syscalls.bpf.c).
 *
 * Such a record says only: offset <= true offset <= offset + width. Every call that moved the position in between
 * overlaps it in time, and each call has a stretch of the file to itself. So the true offset is the lowest one in the
 * interval at which the call does not run into the stretch of a call on the same file that overlaps it in time.
 */
#include "shared_offset.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/mman.h>

#include "trace_format.h"

/* Records before and behind that are searched for calls that overlap in time. */
enum { NEIGHBOURS_MAX = 4096 };

static bool overlaps_in_time(const struct io_record *a, const struct io_record *b)
{
	return a->start_ns <= b->start_ns + b->duration_ns && b->start_ns <= a->start_ns + a->duration_ns;
}

/*
 * End of a neighbour's stretch that [offset, offset + bytes) runs into, or 0. Only calls of the same kind count: a reader
 * and an appender of one file usually have positions of their own.
 */
static uint64_t occupied_until(const struct io_record *records, uint64_t count, uint64_t index, uint64_t offset)
{
	const struct io_record *record = &records[index];
	uint64_t first = index > NEIGHBOURS_MAX ? index - NEIGHBOURS_MAX : 0;
	uint64_t end = index + NEIGHBOURS_MAX < count ? index + NEIGHBOURS_MAX : count;

	for (uint64_t i = first; i < end; i++) {
		const struct io_record *other = &records[i];
		if (i == index || other->kind != RECORD_IO || other->file != record->file || other->result <= 0 ||
		    (other->flags & IO_OFFSET_INFERRED) ||
		    ((other->flags & IO_POSITIONED) && !(other->flags & IO_APPEND)) || other->op != record->op ||
		    !overlaps_in_time(record, other))
			continue;
		if (offset < other->offset + other->result && other->offset < offset + record->result)
			return other->offset + other->result;
	}
	return 0;
}

int shared_offset_resolve(int descriptor, uint64_t record_count, const uint64_t *inferred, size_t inferred_count)
{
	size_t bytes = TRACE_HEADER_BYTES + record_count * TRACE_RECORD_BYTES;
	uint8_t *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
	if (map == MAP_FAILED)
		return -errno;
	struct io_record *records = (struct io_record *)(map + TRACE_HEADER_BYTES);

	for (size_t i = 0; i < inferred_count; i++) {
		struct io_record *record = &records[inferred[i]];
		uint64_t lowest = record->offset, highest = lowest + record->missed_bytes, offset = lowest, until;
		while (offset <= highest && (until = occupied_until(records, record_count, inferred[i], offset)))
			offset = until;
		record->offset = offset <= highest ? offset : lowest;
		record->missed_bytes = TRACE_NOT_MEASURED_U32;
		/* From here on it is a neighbour that occupies its stretch. */
		record->flags &= ~IO_OFFSET_INFERRED;
	}
	for (size_t i = 0; i < inferred_count; i++)
		records[inferred[i]].flags |= IO_OFFSET_INFERRED;
	return munmap(map, bytes) ? -errno : 0;
}

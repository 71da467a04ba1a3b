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
#include <stdbool.h>
#include <sys/mman.h>

#include "trace_format.h"

/*
 * How many records that do not overlap in time are passed in a row before the search gives up, in each direction. The
 * file is near the order of ends, so calls that overlap stand close together.
 */
enum { STRANGERS_MAX = 512 };

static bool overlaps_in_time(const struct io_record *a, const struct io_record *b)
{
	return a->start_ns <= b->start_ns + b->duration_ns && b->start_ns <= a->start_ns + a->duration_ns;
}

/* Whether the other call may have moved the position between the two times at which this call's was read. */
static bool may_interfere(const struct io_record *record, const struct io_record *other)
{
	if (other->kind != RECORD_IO || other->file != record->file || other->op != record->op || other->result <= 0)
		return false;
	/* Only calls of the same kind: a reader and an appender of one file usually have positions of their own. */
	return !(other->flags & IO_OFFSET_INFERRED) && (!(other->flags & IO_POSITIONED) || (other->flags & IO_APPEND));
}

/*
 * End of the stretch of a call that [offset, offset + bytes) of this call runs into, or 0. Looks from the record towards
 * one end of the file: step is 1 or -1.
 */
static uint64_t occupied_until(const struct io_record *records, uint64_t count, uint64_t index, int step,
			       uint64_t offset)
{
	const struct io_record *record = &records[index];

	for (uint64_t i = index + step, strangers = 0; i < count && strangers < STRANGERS_MAX; i += step) {
		const struct io_record *other = &records[i];
		if (!overlaps_in_time(record, other)) {
			strangers++;
			continue;
		}
		strangers = 0;
		if (may_interfere(record, other) && offset < other->offset + other->result &&
		    other->offset < offset + record->result)
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
		while (offset <= highest && ((until = occupied_until(records, record_count, inferred[i], -1, offset)) ||
					     (until = occupied_until(records, record_count, inferred[i], 1, offset))))
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

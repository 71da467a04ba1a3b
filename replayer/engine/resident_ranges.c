// SPDX-License-Identifier: Apache-2.0
// Turns the RESIDENT records of a trace into sorted ranges by file.
#include <errno.h>
#include <stdlib.h>

#include "replayer/engine/message.h"
#include "replayer/engine/resident_ranges.h"

enum { RANGES_MAX = 1 << 22 }; /* 96 MiB; a recording has at most 4096 of one file */

_Static_assert(sizeof(struct resident_range) == 24, "resident_range size");

static int compare_ranges(const void *left, const void *right)
{
	const struct resident_range *a = left, *b = right;

	if (a->file != b->file)
		return a->file < b->file ? -1 : 1;
	return a->offset < b->offset ? -1 : a->offset > b->offset;
}

/* Ranges that touch or overlap, as damaged and merged traces have them, become one. */
static void join_touching(struct resident_ranges *ranges)
{
	size_t kept = 0;

	for (size_t i = 1; i < ranges->count; i++) {
		struct resident_range *last = &ranges->ranges[kept], next = ranges->ranges[i];

		if (next.file == last->file && next.offset <= last->end)
			last->end = next.end > last->end ? next.end : last->end;
		else
			ranges->ranges[++kept] = next;
	}
	if (ranges->count)
		ranges->count = kept + 1;
}

static int add(struct resident_ranges *ranges, const struct resident_range *range)
{
	if (ranges->count == RANGES_MAX) {
		ranges->too_many = true;
		return 0;
	}
	if (ranges->count == ranges->capacity) {
		size_t capacity = ranges->capacity ? 2 * ranges->capacity : 64;
		struct resident_range *larger = realloc(ranges->ranges, capacity * sizeof(*larger));

		if (!larger)
			return -ENOMEM;
		ranges->ranges = larger;
		ranges->capacity = capacity;
	}
	ranges->ranges[ranges->count++] = *range;
	return 0;
}

int resident_ranges_read(struct resident_ranges *ranges, const struct trace *trace, const struct file_table *table,
			 bool streams)
{
	/* The counts of a trace that was not closed cleanly are not final. */
	bool final = !(trace->header->flags & TRACE_INCOMPLETE);
	uint64_t left = final ? trace->header->count[RECORD_RESIDENT] : UINT64_MAX;

	*ranges = (struct resident_ranges){0};
	for (uint64_t i = 0; i < trace->count && left; i++) {
		const struct resident_record *record = &trace->records[i].resident;

		if (streams && i % TRACE_BLOCK_RECORDS == 0 && i)
			trace_drop(trace, i - TRACE_BLOCK_RECORDS, TRACE_BLOCK_RECORDS);
		if (i % TRACE_BLOCK_RECORDS == 0 && atomic_load(trace->stop))
			break; /* the run then ends with its result */
		if (record->kind != RECORD_RESIDENT)
			continue;
		left--;
		uint32_t index = files_index(table, record->file);
		const struct file *file = &table->files[index];
		uint64_t end = add_saturating(record->offset, record->bytes);
		struct resident_range range = {
			.file = index,
			.offset = record->offset,
			.end = end < file->layout_bytes ? end : file->layout_bytes,
			.large_folios = record->large_folios,
			.large_folio_order = record->large_folio_order,
		};
		if (!index || !file->laid_out || range.offset >= range.end)
			continue;
		if (add(ranges, &range)) {
			complain("no memory for the cached ranges of %s; --cache warm or cold needs none", trace->path);
			return -ENOMEM;
		}
	}
	if (ranges->count)
		qsort(ranges->ranges, ranges->count, sizeof(*ranges->ranges), compare_ranges);
	join_touching(ranges);
	return 0;
}

const struct resident_range *resident_ranges_of(const struct resident_ranges *ranges, uint32_t file, size_t *count)
{
	size_t low = 0, high = ranges->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (ranges->ranges[middle].file < file)
			low = middle + 1;
		else
			high = middle;
	}
	size_t end = low;
	while (end < ranges->count && ranges->ranges[end].file == file)
		end++;
	*count = end - low;
	return ranges->ranges + low;
}

void resident_ranges_free(struct resident_ranges *ranges)
{
	free(ranges->ranges);
	ranges->ranges = NULL;
}

// SPDX-License-Identifier: Apache-2.0
// Turns ranges of files, in any order and overlapping, into lists by file and offset.
#include <errno.h>
#include <stdlib.h>

#include "replayer/engine/file_ranges.h"

enum { RANGES_MAX = 1 << 22 }; /* 96 MiB; a recording has at most 4096 of a kind of one file */

_Static_assert(sizeof(struct file_range) == 24, "file_range size");

static int compare_ranges(const void *left, const void *right)
{
	const struct file_range *a = left, *b = right;

	if (a->file != b->file)
		return a->file < b->file ? -1 : 1;
	return a->offset < b->offset ? -1 : a->offset > b->offset;
}

int file_ranges_add(struct file_ranges *ranges, const struct file_range *range)
{
	if (ranges->count == RANGES_MAX) {
		ranges->too_many = true;
		return 0;
	}
	if (ranges->count == ranges->capacity) {
		size_t capacity = ranges->capacity ? 2 * ranges->capacity : 64;
		struct file_range *larger = realloc(ranges->ranges, capacity * sizeof(*larger));

		if (!larger)
			return -ENOMEM;
		ranges->ranges = larger;
		ranges->capacity = capacity;
	}
	ranges->ranges[ranges->count++] = *range;
	return 0;
}

/* Ranges that touch or overlap, as damaged and merged traces have them, become one. */
void file_ranges_sort(struct file_ranges *ranges)
{
	size_t kept = 0;

	if (!ranges->count)
		return;
	qsort(ranges->ranges, ranges->count, sizeof(*ranges->ranges), compare_ranges);
	for (size_t i = 1; i < ranges->count; i++) {
		struct file_range *last = &ranges->ranges[kept], next = ranges->ranges[i];

		if (next.file == last->file && next.offset <= last->end)
			last->end = next.end > last->end ? next.end : last->end;
		else
			ranges->ranges[++kept] = next;
	}
	ranges->count = kept + 1;
}

/* Place of the first that is of a later file, or of this one and ends behind `offset`. */
static size_t find(const struct file_ranges *ranges, uint32_t file, uint64_t offset)
{
	size_t low = 0, high = ranges->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		const struct file_range *range = &ranges->ranges[middle];

		if (range->file < file || (range->file == file && range->end <= offset))
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

uint64_t file_ranges_clip(struct file_ranges *ranges, uint32_t file, uint64_t end)
{
	uint64_t bytes = 0;

	for (size_t i = find(ranges, file, 0); i < ranges->count && ranges->ranges[i].file == file; i++) {
		struct file_range *range = &ranges->ranges[i];

		range->offset = range->offset < end ? range->offset : end;
		range->end = range->end < end ? range->end : end;
		bytes += range->end - range->offset;
	}
	return bytes;
}

const struct file_range *file_ranges_of(const struct file_ranges *ranges, uint32_t file, size_t *count)
{
	size_t first = find(ranges, file, 0), end = first;

	while (end < ranges->count && ranges->ranges[end].file == file)
		end++;
	*count = end - first;
	return ranges->ranges + first;
}

bool file_ranges_meet(const struct file_ranges *ranges, uint32_t file, uint64_t offset, uint64_t end)
{
	size_t at = find(ranges, file, offset);

	return at < ranges->count && ranges->ranges[at].file == file && ranges->ranges[at].offset < end;
}

void file_ranges_free(struct file_ranges *ranges)
{
	free(ranges->ranges);
	ranges->ranges = NULL;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Turns ranges of files, in any order and overlapping, into lists by file and offset. */
#ifndef FLEXTRACE_FILE_RANGES_H
#define FLEXTRACE_FILE_RANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct file_range {
	uint32_t file; /* index in the table of files */
	uint8_t large_folios, large_folio_order; /* of a cached range, as in resident_record */
	uint64_t offset, end;
};

/* When sorted, those of a file do not touch each other. */
struct file_ranges {
	struct file_range *ranges;
	size_t count;
	size_t capacity;
	bool too_many; /* more than are kept: what was beyond is not there */
};

/* 0 or -ENOMEM. */
int file_ranges_add(struct file_ranges *ranges, const struct file_range *range);

/* After the last was added. */
void file_ranges_sort(struct file_ranges *ranges);

/* Ends those of a file at `end`; some may be empty then. Returns how many bytes are in them. */
uint64_t file_ranges_clip(struct file_ranges *ranges, uint32_t file, uint64_t end);

/* The ranges of a file, and how many. */
const struct file_range *file_ranges_of(const struct file_ranges *ranges, uint32_t file, size_t *count);

/* Whether any byte of [offset, end) of a file is in a range. */
bool file_ranges_meet(const struct file_ranges *ranges, uint32_t file, uint64_t offset, uint64_t end);

void file_ranges_free(struct file_ranges *ranges);

#endif

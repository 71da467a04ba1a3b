/* SPDX-License-Identifier: Apache-2.0 */
/* Turns the RESIDENT records of a trace into the ranges of each file that were in the page cache when it was recorded. */
#ifndef FLEXTRACE_RESIDENT_RANGES_H
#define FLEXTRACE_RESIDENT_RANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "replayer/engine/files.h"

struct resident_range {
	uint32_t file; /* index in the table of files */
	uint8_t large_folios, large_folio_order; /* as in resident_record */
	uint64_t offset, end;
};

/* By file and offset; those of a file do not touch each other. */
struct resident_ranges {
	struct resident_range *ranges;
	size_t count;
	size_t capacity;
	bool too_many; /* more than are kept: what was beyond is not cached */
};

/*
 * Reads the trace up to the last of as many such records as its header counts. `streams`: it may be larger than memory,
 * and its pages are given back behind. After a stop only what it has come to.
 */
int resident_ranges_read(struct resident_ranges *ranges, const struct trace *trace, const struct file_table *table,
			 bool streams);

/* The ranges of a file, and how many. */
const struct resident_range *resident_ranges_of(const struct resident_ranges *ranges, uint32_t file, size_t *count);

void resident_ranges_free(struct resident_ranges *ranges);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Turns the cached share of every file that a trace recorded into pages of the page cache, before a replay. */
#ifndef FLEXTRACE_CACHE_STATE_H
#define FLEXTRACE_CACHE_STATE_H

#include <stdint.h>

#include "replayer/engine/image.h"

enum cache_state {
	CACHE_RECORDED, /* the recorded ranges; without any the first resident_bytes; all where that was not measured */
	CACHE_WARM, /* everything */
	CACHE_COLD, /* nothing */
	CACHE_KEEP, /* whatever is there */
};

struct cache_report {
	uint64_t wanted_bytes; /* to be cached */
	uint64_t wanted_ranges; /* in so many pieces */
	uint64_t achieved_bytes; /* of the wanted ones, cached when the replay began, by mincore(2) */
	uint64_t resident_bytes; /* cached in all when the replay began, wanted or not */
};

/*
 * A recording says which ranges of a file were cached (RESIDENT records). An altered trace only says how many bytes: then
 * the first ones are taken, which is what a program that read a file from its start leaves behind. In which order pages
 * had been used last is in no trace: files are loaded in the order of their ids, each from its beginning. Only the files
 * of the image are touched, and the replay's device, of which nothing stays cached; never the cache of others. Reads
 * nothing by system calls. Where a recording says how large folios were, the data is written again as it is.
 */
int cache_apply(const struct image *image, const struct file_table *table, const struct file_ranges *ranges,
		enum cache_state state, struct cache_report *report);

#endif

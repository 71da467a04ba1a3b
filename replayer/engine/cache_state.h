/* SPDX-License-Identifier: Apache-2.0 */
/* Turns the cached share of every file that a trace recorded into pages of the page cache, before a replay. */
#ifndef FLEXTRACE_CACHE_STATE_H
#define FLEXTRACE_CACHE_STATE_H

#include <stdint.h>

#include "replayer/engine/image.h"

enum cache_state {
	CACHE_RECORDED, /* the first resident_bytes of every file; all of it where that was not measured */
	CACHE_WARM, /* everything */
	CACHE_COLD, /* nothing */
	CACHE_KEEP, /* whatever is there */
};

struct cache_report {
	uint64_t wanted_bytes; /* to be cached */
	uint64_t resident_bytes; /* cached when the replay began, by mincore(2) */
};

/*
 * A trace says how many bytes of a file were cached, not which: the first ones are taken, which is what a program that
 * read a file from its start leaves behind. Only the files of the image are touched, never the cache of others. Reads
 * nothing by system calls: a recording of the replay has to equal the original.
 */
int cache_apply(const struct image *image, const struct file_table *table, enum cache_state state,
		struct cache_report *report);

#endif

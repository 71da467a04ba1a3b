/* SPDX-License-Identifier: Apache-2.0 */
/* Turns a part of a file into pages of the page cache, in folios as large as wanted: single pages, a reader's, a writer's. */
#ifndef FLEXTRACE_CACHE_LOAD_H
#define FLEXTRACE_CACHE_LOAD_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum {
	POPULATE_BYTES =
		16 << 20, /* mapped at one time: mapped pages cannot be reclaimed easily in a small memory group */
	LOAD_FOLIO_ORDER_MAX = 11, /* 8 MiB with pages of 4 KiB; what a trace says beyond is taken for that */
};

/* A part of an open file; nothing of it is cached yet. Loading ends early when `stop` is set. */
struct cache_part {
	int descriptor;
	uint64_t from, end; /* `from` is the first byte of a page, `end` at most the end of the file */
	const atomic_bool *stop;
};

/* Exactly these pages, each in a folio of its own. */
int cache_load_single_pages(const struct cache_part *part);

/* As a program that reads it in sequence, behind whose first window folios grow; beyond its end pages may be cached, too. */
int cache_load_in_sequence(const struct cache_part *part);

/*
 * In folios of 2^order pages, as large as the file system has them at most: it makes them as large as a write, so that its
 * data is written again as it is. Exactly these pages; they have been written to the device when this returns. `part`
 * is open for reading and writing.
 */
int cache_load_in_folios(const struct cache_part *part, unsigned int order);

#endif

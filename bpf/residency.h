/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FLEXTRACE_RESIDENCY_H
#define FLEXTRACE_RESIDENCY_H

#include <stdbool.h>
#include <stdint.h>

#include "folio_size.h"
#include "seen_file.h"
#include "writer.h"

enum {
	RESIDENT_RANGES_MAX = 4096, /* of one file; where there are more, close ones are joined */
	RESIDENT_FILES_MAX = 1 << 16, /* at once; beyond that files have no ranges */
	FOLIO_SAMPLES_MAX = 32, /* cached pages of one file whose folios are looked at; 4 us each */
};

struct resident_range {
	uint64_t first, last; /* page numbers, last is not in it */
};

/* What is known of large folios, in the numbers of resident_record. */
struct large_folios {
	uint8_t share, order;
};

/* A file that was partly in the page cache at first sight. */
struct resident_file {
	struct seen_file seen;
	/* Once it was looked at. */
	struct resident_range *ranges;
	uint32_t range_count;
	struct large_folios large;
};

struct residency {
	struct resident_file *files; /* a ring: of those looked at the ranges wait until the FILE record is written */
	uint32_t first, looked, count;
	/* The file that is looked at. */
	int descriptor; /* -1 = none */
	uint64_t page, pages;
	uint64_t step; /* pages that the next look takes in */
	uint32_t looks; /* that were taken */
	uint64_t joined_pages; /* gaps up to this are part of a range */
	struct resident_range *ranges;
	uint32_t range_count;
	uint32_t given_up; /* files that would have taken too many looks, or came when too many waited */
	bool has_cachestat;
	struct folio_size folio_size;
};

/* Whether this kernel counts the cached pages of a range in one call; else they are looked up one by one. */
bool residency_has_cachestat(void);
int residency_init(struct residency *residency);
/* Takes note of a file at its first sight. */
void residency_note(struct residency *residency, const struct file_record *record, const char *path, pid_t viewer);
/*
 * Looks at files for at most limit_ns (0: until none waits) and writes the ranges of those that are through. FILE records up to
 * passed_ns are written.
 */
void residency_round(struct residency *residency, struct writer *writer, uint64_t passed_ns, uint64_t limit_ns);
void residency_deinit(struct residency *residency);

#endif /* FLEXTRACE_RESIDENCY_H */

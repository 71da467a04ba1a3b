// SPDX-License-Identifier: Apache-2.0
/*
 * Turns a file that was partly in the page cache when it was first seen into RESIDENT records.
 *
 * The kernel side knows how many pages there were, not which. They are looked up here, in the round that takes the FILE
 * record from its ring: it comes at once, or where files have come just before, within HURRIED_INTERVAL_MS (session.c); for
 * a large file more. What the program has read or dropped in between counts as if it had been there or not; nothing is
 * subtracted, because the records say what was read, and when. What was found waits until the FILE record is in the trace.
 * With it goes in which share of the file's cached pages lay in large folios.
 */
#include "residency.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cachestat.h"
#include "clock.h"

enum {
	CHUNK_PAGES = 1024,
	STEP_PAGES_MAX = 1 << 18, /* of one look; if all of them were cached, counting them would take some ms */
	LOOKS_MAX = 1 << 20, /* at one file: at 1 PiB without a cached page, or 4 TiB page by page */
};

bool residency_has_cachestat(void)
{
	return syscall(SYS_cachestat, -1, NULL, NULL, 0) == 0 || errno != ENOSYS;
}

static uint64_t page_bytes(void)
{
	return sysconf(_SC_PAGESIZE);
}

int residency_init(struct residency *residency)
{
	*residency = (struct residency){
		.descriptor = -1,
		.has_cachestat = true,
		.files = calloc(RESIDENT_FILES_MAX, sizeof(*residency->files)),
		.ranges = calloc(RESIDENT_RANGES_MAX, sizeof(*residency->ranges)),
	};
	folio_size_init(&residency->folio_size);
	return residency->files && residency->ranges ? 0 : -ENOMEM;
}

static struct resident_file *file_at(struct residency *residency, uint32_t index)
{
	return &residency->files[(residency->first + index) % RESIDENT_FILES_MAX];
}

/* The one that is looked at, or the next one. */
static struct resident_file *current_file(struct residency *residency)
{
	return file_at(residency, residency->looked);
}

void residency_note(struct residency *residency, const struct file_record *record, const char *path, pid_t viewer)
{
	if (!seen_file_can_be_asked(record) || !record->resident_bytes ||
	    record->resident_bytes == TRACE_NOT_MEASURED_U64 || !path)
		return;
	char *copy = residency->count < RESIDENT_FILES_MAX ? strdup(path) : NULL;
	if (!copy) {
		residency->given_up++;
		return;
	}
	*file_at(residency, residency->count++) =
		(struct resident_file){.seen = {.record = *record, .path = copy, .viewer = viewer}};
}

/*
 * Of a file that the recorder neither owns nor may write to the kernel does not tell what is cached: mincore claims that
 * every page is there.
 */
static int open_file(const struct seen_file *file)
{
	int descriptor = seen_file_open(file);
	bool owned = descriptor >= 0 && fcntl(descriptor, F_GETFL) & O_NOATIME;
	if (descriptor >= 0 && !owned && faccessat(descriptor, "", W_OK, AT_EACCESS | AT_EMPTY_PATH)) {
		close(descriptor);
		return -1;
	}
	return descriptor;
}

/* Joins the ranges with small gaps between them, until half of the table is free. */
static void coarsen(struct residency *residency)
{
	while (residency->range_count > RESIDENT_RANGES_MAX / 2) {
		uint32_t kept = 0;
		residency->joined_pages = residency->joined_pages ? residency->joined_pages * 2 : 1;
		for (uint32_t i = 1; i < residency->range_count; i++) {
			struct resident_range *last = &residency->ranges[kept], next = residency->ranges[i];
			if (next.first - last->last <= residency->joined_pages)
				last->last = next.last;
			else
				residency->ranges[++kept] = next;
		}
		residency->range_count = kept + 1;
	}
}

static void add_range(struct residency *residency, uint64_t first, uint64_t last)
{
	struct resident_range *range = residency->ranges + residency->range_count - 1;
	if (residency->range_count && first - range->last <= residency->joined_pages) {
		range->last = last;
		return;
	}
	if (residency->range_count == RESIDENT_RANGES_MAX)
		coarsen(residency);
	residency->ranges[residency->range_count++] = (struct resident_range){first, last};
}

/* Pages of the chunk that are in the cache, or -1 if the kernel cannot say so in one call. */
static int64_t count_cached(struct residency *residency, uint64_t first, uint64_t pages)
{
	int64_t cached = -1;
	if (residency->has_cachestat)
		cached = cachestat_count(residency->descriptor, first * page_bytes(), pages * page_bytes());
	residency->has_cachestat = cached >= 0;
	return cached;
}

/* Page by page. The mapping is not touched, so that nothing is read. */
static void look_at_pages(struct residency *residency, uint64_t first, uint64_t pages)
{
	unsigned char resident[CHUNK_PAGES];
	size_t bytes = pages * page_bytes();
	void *map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, residency->descriptor, first * page_bytes());
	if (map == MAP_FAILED)
		return;
	if (!mincore(map, bytes, resident))
		for (uint64_t i = 0; i < pages; i++)
			if (resident[i] & 1)
				add_range(residency, first + i, first + i + 1);
	munmap(map, bytes);
}

/* Where nothing is cached a look takes in twice as much as the one before: most of a sparse file is nothing. */
static void look_at_chunk(struct residency *residency)
{
	uint64_t left = residency->pages - residency->page;
	uint64_t pages = left < residency->step ? left : residency->step;
	int64_t cached = count_cached(residency, residency->page, pages);
	residency->looks++;
	residency->step = CHUNK_PAGES;
	if (cached && pages > CHUNK_PAGES)
		return; /* the next one is at less, from the same page on */
	if (cached >= (int64_t)pages)
		add_range(residency, residency->page, residency->page + pages);
	else if (cached)
		look_at_pages(residency, residency->page, pages);
	else
		residency->step = 2 * pages < STEP_PAGES_MAX ? 2 * pages : STEP_PAGES_MAX;
	residency->page += pages;
}

static void begin_file(struct residency *residency)
{
	const struct seen_file *file = &current_file(residency)->seen;
	residency->page = residency->range_count = residency->joined_pages = residency->looks = 0;
	residency->step = CHUNK_PAGES;
	residency->pages = (file->record.size_bytes + page_bytes() - 1) / page_bytes();
	if (file->record.resident_bytes < file->record.size_bytes) {
		residency->descriptor = open_file(file);
		if (residency->descriptor < 0)
			residency->pages = 0;
	} else {
		/* All of it: nothing to look up. */
		residency->page = residency->pages;
		add_range(residency, 0, residency->pages);
	}
}

/* Of the pages by the order of their folios. */
static struct large_folios summarize(const uint64_t pages[FOLIO_ORDER_MAX + 1])
{
	uint64_t known = 0, below = 0;
	for (int order = 0; order <= FOLIO_ORDER_MAX; order++)
		known += pages[order];
	if (!known)
		return (struct large_folios){0};
	uint64_t large = known - pages[0];
	if (!large)
		return (struct large_folios){LARGE_FOLIOS_NONE, 0};
	int median = 0;
	while (2 * below < large)
		below += pages[++median];
	return (struct large_folios){LARGE_FOLIOS_NONE + (LARGE_FOLIOS_ALL - LARGE_FOLIOS_NONE) * large / known,
				     median};
}

/* By pages of the file that are spread evenly over the ranges of what is cached of it. */
static struct large_folios look_at_folios(struct residency *residency, const struct seen_file *file)
{
	uint64_t cached = 0, before = 0, pages[FOLIO_ORDER_MAX + 1] = {0};
	for (uint32_t i = 0; i < residency->range_count; i++)
		cached += residency->ranges[i].last - residency->ranges[i].first;
	if (file->record.size_bytes <= page_bytes())
		return (struct large_folios){LARGE_FOLIOS_NONE, 0};
	if (residency->descriptor < 0)
		residency->descriptor = open_file(file);
	if (residency->descriptor < 0)
		return (struct large_folios){0};
	uint64_t samples = cached < FOLIO_SAMPLES_MAX ? cached : FOLIO_SAMPLES_MAX;
	for (uint64_t sample = 0, i = 0; sample < samples; sample++) {
		const struct resident_range *range = &residency->ranges[i];
		uint64_t wanted = (2 * sample + 1) * cached / (2 * samples); /* of the cached ones */
		for (; wanted - before >= range->last - range->first; range = &residency->ranges[++i])
			before += range->last - range->first;
		int order =
			folio_size_order(&residency->folio_size, residency->descriptor, range->first + wanted - before);
		if (order == -EPERM || order == -EINVAL)
			return (struct large_folios){0};
		if (order >= 0)
			pages[order]++;
	}
	return summarize(pages);
}

static void end_file(struct residency *residency)
{
	struct resident_file *file = current_file(residency);
	size_t bytes = residency->range_count * sizeof(*file->ranges);
	/* A part would be taken for all that was cached. */
	bool is_whole = residency->page == residency->pages;
	file->ranges = is_whole && bytes ? malloc(bytes) : NULL;
	if (file->ranges) {
		memcpy(file->ranges, residency->ranges, bytes);
		file->range_count = residency->range_count;
		file->large = look_at_folios(residency, &file->seen);
	}
	residency->given_up += !is_whole || (bytes && !file->ranges);
	if (residency->descriptor >= 0)
		close(residency->descriptor);
	residency->descriptor = -1;
	residency->pages = residency->page = 0;
	residency->looked++;
}

static void write_ranges(const struct resident_file *file, struct writer *writer)
{
	const struct file_record *seen = &file->seen.record;
	for (uint32_t i = 0; i < file->range_count; i++) {
		const struct resident_range *range = &file->ranges[i];
		uint64_t end = range->last * page_bytes();
		struct resident_record record = {
			.kind = RECORD_RESIDENT,
			.large_folios = file->large.share,
			.large_folio_order = file->large.order,
			.file = seen->file,
			.time_ns = seen->time_ns,
			.offset = range->first * page_bytes(),
		};
		/* The last page ends where the file does. */
		record.bytes = (end < seen->size_bytes ? end : seen->size_bytes) - record.offset;
		writer_append(writer, &record);
	}
}

static void forget_first(struct residency *residency)
{
	struct resident_file *file = file_at(residency, 0);
	free(file->ranges);
	free(file->seen.path);
	residency->first = (residency->first + 1) % RESIDENT_FILES_MAX;
	residency->count--;
}

void residency_round(struct residency *residency, struct writer *writer, uint64_t passed_ns, uint64_t limit_ns)
{
	uint64_t began_ns = monotonic_ns();
	while (residency->looked < residency->count && (!limit_ns || monotonic_ns() - began_ns < limit_ns)) {
		if (residency->page == 0)
			begin_file(residency);
		if (residency->page < residency->pages && residency->looks < LOOKS_MAX)
			look_at_chunk(residency);
		else
			end_file(residency);
	}
	for (; residency->looked && file_at(residency, 0)->seen.record.time_ns <= passed_ns; residency->looked--) {
		write_ranges(file_at(residency, 0), writer);
		forget_first(residency);
	}
}

void residency_deinit(struct residency *residency)
{
	if (!residency->files)
		return; /* never made */
	while (residency->count)
		forget_first(residency);
	if (residency->descriptor >= 0)
		close(residency->descriptor);
	folio_size_deinit(&residency->folio_size);
	free(residency->files);
	free(residency->ranges);
}

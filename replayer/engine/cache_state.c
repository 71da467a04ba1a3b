// SPDX-License-Identifier: Apache-2.0
// Turns the cached share of every file into pages of the page cache: evict all, then load the share.
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "bpf/cachestat.h"
#include "replayer/engine/cache_load.h"
#include "replayer/engine/cache_state.h"
#include "replayer/engine/message.h"

enum {
	MINCORE_BYTES = 64 << 20,
	PAGE_BYTES = 4096, /* at most the size of a page */
};

struct open_file {
	int descriptor;
	bool rewritable; /* its data can be written where it is, and its pages come in large folios then */
};

static void close_file(const struct open_file *open)
{
	if (open->descriptor >= 0)
		close(open->descriptor);
}

/* Bytes of [from, end) in the page cache. */
static uint64_t count_resident(const struct image *image, const struct file *file, int descriptor, uint64_t from,
			       uint64_t end)
{
	static unsigned char pages[MINCORE_BYTES / PAGE_BYTES];
	uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t resident = 0;

	for (uint64_t at = from / page_bytes * page_bytes; at < end && !atomic_load(image->stop); at += MINCORE_BYTES) {
		uint64_t bytes = end - at < MINCORE_BYTES ? end - at : MINCORE_BYTES;
		/* Nearly all of a large file with holes. */
		if (file->hole_bytes && !cachestat_count(descriptor, at, bytes))
			continue;
		void *map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, descriptor, (off_t)at);

		if (map == MAP_FAILED)
			return resident;
		if (mincore(map, bytes, pages) == 0) {
			for (uint64_t page = at; page < at + bytes; page += page_bytes) {
				uint64_t first = page < from ? from : page;
				uint64_t last = page + page_bytes < end ? page + page_bytes : end;

				if (pages[(page - at) / page_bytes] & 1)
					resident += last - first;
			}
		}
		munmap(map, bytes);
	}
	return resident;
}

/* What is wanted of a file. */
struct wanted {
	const struct file_range *ranges;
	size_t count;
	struct file_range first; /* the only one where none are recorded */
};

static void find_wanted(struct wanted *wanted, const struct file *file, uint32_t id, const struct file_ranges *ranges,
			enum cache_state state)
{
	wanted->ranges = file_ranges_of(ranges, id, &wanted->count);
	if (state == CACHE_RECORDED && wanted->count)
		return;
	wanted->first = (struct file_range){.file = id};
	if (state == CACHE_WARM || state == CACHE_RECORDED)
		wanted->first.end = file->layout_bytes;
	if (state == CACHE_RECORDED && file->resident_bytes < file->layout_bytes)
		wanted->first.end = file->resident_bytes;
	wanted->ranges = &wanted->first;
	wanted->count = wanted->first.end > 0;
}

/*
 * The share of it that is to be in large folios: as much as was at recording or, where nobody knows, as the trace moves in
 * long runs. The kernel makes folios as large as a reader's run, or a write, lets it; reads of single pages take up to
 * twice as long, and a folio that is written to counts as dirty whole: small random writes to what was read in sequence
 * reach the limit on dirty pages much sooner than writes to what was read at random (docs/decisions/0013).
 */
static double large_folio_share(const struct file_range *range, const struct file *file)
{
	if (range->large_folios)
		return (range->large_folios - LARGE_FOLIOS_NONE) / (double)(LARGE_FOLIOS_ALL - LARGE_FOLIOS_NONE);
	return file->moved_bytes ? (double)file->run_bytes / (double)file->moved_bytes : 1;
}

/*
 * Whether writing puts pages of a file into large folios, and its data back where it was: the latter does not hold on
 * btrfs, where it would undo --layout recorded.
 */
static bool writes_make_folios(int descriptor)
{
	struct statfs file_system;

	if (fstatfs(descriptor, &file_system) < 0)
		return false;
	return file_system.f_type == EXT4_SUPER_MAGIC || file_system.f_type == XFS_SUPER_MAGIC;
}

static int load_range(const struct image *image, const struct open_file *open, const struct file_range *range,
		      const struct file *file)
{
	uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t from = range->offset / page_bytes * page_bytes, bytes = range->end - from;
	uint64_t large_bytes = (uint64_t)(large_folio_share(range, file) * (double)bytes);
	bool rewritten = range->large_folio_order && open->rewritable;

	if (large_bytes < bytes)
		large_bytes = large_bytes / page_bytes * page_bytes;
	/* What is read ahead of it is to be wanted, too. */
	if (!rewritten && range->end - range->offset < file->layout_bytes) {
		uint64_t most = bytes > POPULATE_BYTES ? (bytes - POPULATE_BYTES) / page_bytes * page_bytes : 0;

		large_bytes = large_bytes < most ? large_bytes : most;
	}
	struct cache_part large = {open->descriptor, from, from + large_bytes, image->stop};
	struct cache_part single = {open->descriptor, from + large_bytes, range->end, image->stop};
	/* First, so that what is read ahead ends at what is there. */
	int error = cache_load_single_pages(&single);

	if (error)
		return error;
	return rewritten ? cache_load_in_folios(&large, range->large_folio_order) : cache_load_in_sequence(&large);
}

static int open_file(struct open_file *open, const struct image *image, const char *name, bool rewritable)
{
	int flags = O_NOFOLLOW | O_CLOEXEC;

	open->descriptor = rewritable ? openat(image->directory, name, O_RDWR | flags) : -1;
	open->rewritable = open->descriptor >= 0 && writes_make_folios(open->descriptor);
	if (open->descriptor < 0)
		open->descriptor = openat(image->directory, name, O_RDONLY | flags);
	if (open->descriptor >= 0)
		return 0;
	complain("cannot open %s/%s: %s", image->path, name, strerror(errno));
	return -errno;
}

/* Evicts a file and loads what is wanted of it. */
static int load_file(const struct image *image, const char *name, const struct file *file, const struct wanted *wanted,
		     struct cache_report *report)
{
	__attribute__((cleanup(close_file))) struct open_file open;
	/* Written again, holes would be data. */
	bool rewritable = !file->hole_bytes && wanted->count && wanted->ranges[0].large_folio_order;
	int error = open_file(&open, image, name, rewritable);

	if (error)
		return error;
	/* A dirty page cannot be evicted. */
	if (fdatasync(open.descriptor) < 0) {
		error = errno;
		complain("cannot write %s/%s to its device: %s", image->path, name, strerror(error));
		return -error;
	}
	posix_fadvise(open.descriptor, 0, 0, POSIX_FADV_DONTNEED);
	for (size_t i = 0; i < wanted->count; i++) {
		const struct file_range *range = &wanted->ranges[i];
		error = load_range(image, &open, range, file);
		if (error) {
			complain("cannot bring %s/%s into the page cache: %s", image->path, name, strerror(-error));
			return error;
		}
		report->wanted_bytes += range->end - range->offset;
		report->wanted_ranges++;
	}
	return 0;
}

static int count_file(const struct image *image, const char *name, const struct file *file, const struct wanted *wanted,
		      struct cache_report *report)
{
	__attribute__((cleanup(close_file))) struct open_file open;
	int error = open_file(&open, image, name, false);

	if (error)
		return error;
	report->resident_bytes += count_resident(image, file, open.descriptor, 0, file->layout_bytes);
	for (size_t i = 0; i < wanted->count; i++)
		report->achieved_bytes +=
			count_resident(image, file, open.descriptor, wanted->ranges[i].offset, wanted->ranges[i].end);
	return 0;
}

/* Of a device nothing is cached at the start: its own descriptor has no O_DIRECT, so the checks have read some. */
static int evict_target(const struct target *target)
{
	/* A dirty page cannot be evicted. */
	if (target->writable && fdatasync(target->descriptor) < 0) {
		complain("cannot write what is cached of %s: %s", target->path, strerror(errno));
		return -errno;
	}
	posix_fadvise(target->descriptor, 0, 0, POSIX_FADV_DONTNEED);
	return 0;
}

int cache_apply(const struct image *image, const struct file_table *table, const struct file_ranges *ranges,
		enum cache_state state, struct cache_report *report)
{
	*report = (struct cache_report){0};
	if (image->target && state != CACHE_KEEP) {
		int error = evict_target(image->target);

		if (error)
			return error;
	}
	/* Counted after everything was populated, since what comes later may push out what came first. */
	for (int counting = state == CACHE_KEEP; counting < 2; counting++) {
		for (uint32_t id = 1; id < table->count; id++) {
			const struct file *file = &table->files[id];
			char name[IMAGE_NAME_BYTES];
			struct wanted wanted;

			if (!file->laid_out || file->directory || !file->layout_bytes)
				continue;
			if (atomic_load(image->stop))
				return 0;
			image_name(name, false, id);
			find_wanted(&wanted, file, id, ranges, state);
			int error = counting ? count_file(image, name, file, &wanted, report)
					     : load_file(image, name, file, &wanted, report);
			if (error)
				return error;
		}
	}
	return 0;
}

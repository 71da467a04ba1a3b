// SPDX-License-Identifier: Apache-2.0
// Turns the cached share of every file into pages of the page cache: evict all, then map and populate the share.
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "replayer/engine/cache_state.h"
#include "replayer/engine/message.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

enum {
	POPULATE_BYTES =
		16 << 20, /* mapped at one time: mapped pages cannot be reclaimed easily in a small memory group */
	MINCORE_BYTES = 64 << 20,
	READAHEAD_BYTES = 128 << 10, /* what readahead(2) does in one call; it leaves out what is more */
	PAGE_BYTES = 4096, /* granularity of touching, at most the size of a page */
};

static void close_descriptor(const int *descriptor)
{
	if (*descriptor >= 0)
		close(*descriptor);
}

/*
 * Of a file that is wanted whole, populating reads ahead as a program does that reads the file from its beginning, so
 * that its pages come in the same large folios: with single pages, 64 KiB reads took 1.6 times as long here. Where only
 * a part is wanted, readahead(2) starts the reading of exactly these bytes and populating only waits for it, since the
 * device's readahead can be the whole file.
 */
static int populate_chunk(int descriptor, uint64_t offset, size_t bytes, bool whole)
{
	for (size_t at = 0; !whole && at < bytes; at += READAHEAD_BYTES)
		(void)readahead(descriptor, (off64_t)(offset + at),
				bytes - at < READAHEAD_BYTES ? bytes - at : READAHEAD_BYTES);
	void *map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, descriptor, (off_t)offset);

	if (map == MAP_FAILED)
		return -errno;
	madvise(map, bytes, whole ? MADV_SEQUENTIAL : MADV_RANDOM);
	int error = madvise(map, bytes, MADV_POPULATE_READ) < 0 ? -errno : 0;
	if (error == -EINVAL) {
		/* Before Linux 5.14. */
		for (size_t at = 0; at < bytes; at += PAGE_BYTES)
			(void)((volatile const char *)map)[at];
		error = 0;
	}
	munmap(map, bytes);
	return error;
}

static uint64_t count_resident(const struct image *image, const char *name, uint64_t size)
{
	__attribute__((cleanup(close_descriptor))) int descriptor =
		openat(image->directory, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	static unsigned char pages[MINCORE_BYTES / PAGE_BYTES];
	uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t resident = 0;

	for (uint64_t offset = 0; offset < size; offset += MINCORE_BYTES) {
		uint64_t bytes = size - offset < MINCORE_BYTES ? size - offset : MINCORE_BYTES;
		void *map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, descriptor, (off_t)offset);

		if (map == MAP_FAILED)
			return resident;
		if (mincore(map, bytes, pages) == 0) {
			for (uint64_t at = 0; at < bytes; at += page_bytes) {
				uint64_t rest = bytes - at;

				if (pages[at / page_bytes] & 1)
					resident += rest < page_bytes ? rest : page_bytes;
			}
		}
		munmap(map, bytes);
	}
	return resident;
}

static int apply_to_file(const struct image *image, const struct file *file, const char *name, enum cache_state state,
			 struct cache_report *report)
{
	__attribute__((cleanup(close_descriptor))) int descriptor =
		openat(image->directory, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	uint64_t wanted = state == CACHE_COLD ? 0 : file->layout_bytes;

	if (descriptor < 0) {
		complain("cannot open %s/%s: %s", image->path, name, strerror(errno));
		return -errno;
	}
	if (state == CACHE_RECORDED && file->resident_bytes < wanted)
		wanted = file->resident_bytes;
	/* A dirty page cannot be evicted. */
	if (fdatasync(descriptor) < 0) {
		complain("cannot write %s/%s to its device: %s", image->path, name, strerror(errno));
		return -errno;
	}
	posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);
	for (uint64_t at = 0; at < wanted && !atomic_load(image->stop); at += POPULATE_BYTES) {
		uint64_t bytes = wanted - at < POPULATE_BYTES ? wanted - at : POPULATE_BYTES;
		int error = populate_chunk(descriptor, at, bytes, wanted == file->layout_bytes);

		if (error) {
			complain("cannot read %s/%s into the page cache: %s", image->path, name, strerror(-error));
			return error;
		}
	}
	report->wanted_bytes += wanted;
	return 0;
}

int cache_apply(const struct image *image, const struct file_table *table, enum cache_state state,
		struct cache_report *report)
{
	*report = (struct cache_report){0};
	/* Counted after everything was populated, since what comes later may push out what came first. */
	for (int counting = state == CACHE_KEEP; counting < 2; counting++) {
		for (uint32_t id = 1; id < table->count; id++) {
			const struct file *file = &table->files[id];
			char name[IMAGE_NAME_BYTES];

			if (!file->laid_out || file->directory || !file->layout_bytes)
				continue;
			if (atomic_load(image->stop))
				return 0;
			image_name(name, false, id);
			int error = 0;
			if (counting)
				report->resident_bytes += count_resident(image, name, file->layout_bytes);
			else
				error = apply_to_file(image, file, name, state, report);
			if (error)
				return error;
		}
	}
	return 0;
}

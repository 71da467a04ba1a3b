// SPDX-License-Identifier: Apache-2.0
// Turns a part of a file into pages of the page cache: by mapping, populating and touching it, and by writing it again.
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "replayer/engine/cache_load.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

enum {
	READAHEAD_BYTES = 128 << 10, /* what readahead(2) does in one call; it leaves out what is more */
	PAGE_BYTES = 4096, /* granularity of touching, at most the size of a page */
	REWRITE_BYTES = 1 << 20, /* read, dropped and written again at one time, if no folio is larger */
};

struct mapping {
	void *address;
	size_t bytes;
};

static void unmap(const struct mapping *mapping)
{
	if (mapping->address != MAP_FAILED)
		munmap(mapping->address, mapping->bytes);
}

/*
 * In sequence, populating reads ahead much as a program does that reads the file from its beginning, so that its pages
 * come in large folios, too, behind the first window. A plain read would be closer to it, but count as one of the replay's
 * where its recording is characterized. Otherwise readahead(2) reads exactly these bytes, in single pages, and populating
 * only waits for it, since the device's readahead can be the whole file. Copies what is read to `copy` if that is given.
 */
static int populate_chunk(int descriptor, uint64_t offset, size_t bytes, bool in_sequence, char *copy)
{
	for (size_t at = 0; !in_sequence && at < bytes; at += READAHEAD_BYTES)
		(void)readahead(descriptor, (off64_t)(offset + at),
				bytes - at < READAHEAD_BYTES ? bytes - at : READAHEAD_BYTES);
	__attribute__((cleanup(unmap))) struct mapping map = {
		mmap(NULL, bytes, PROT_READ, MAP_SHARED, descriptor, (off_t)offset), bytes};

	if (map.address == MAP_FAILED)
		return -errno;
	madvise(map.address, bytes, in_sequence ? MADV_SEQUENTIAL : MADV_RANDOM);
	/* What the device cannot read it calls a bad address. */
	if (madvise(map.address, bytes, MADV_POPULATE_READ) < 0 && errno != EINVAL)
		return errno == EFAULT ? -EIO : -errno;
	if (copy)
		memcpy(copy, map.address, bytes);
	/*
	 * Before Linux 5.14 only this reads. And in a virtual machine whose host takes free memory back, what a device
	 * has just filled gets its place in the hypervisor's page tables when a processor first touches it, which
	 * the replay's first read of the file would wait for and the recorded one did not (docs/decisions/0010).
	 */
	for (size_t at = 0; !copy && at < bytes; at += PAGE_BYTES)
		(void)((volatile const char *)map.address)[at];
	return 0;
}

static int load(const struct cache_part *part, bool in_sequence)
{
	int error = 0;

	for (uint64_t at = part->from; !error && at < part->end && !atomic_load(part->stop); at += POPULATE_BYTES) {
		uint64_t bytes = part->end - at < POPULATE_BYTES ? part->end - at : POPULATE_BYTES;

		error = populate_chunk(part->descriptor, at, bytes, in_sequence, NULL);
	}
	return error;
}

int cache_load_single_pages(const struct cache_part *part)
{
	return load(part, false);
}

int cache_load_in_sequence(const struct cache_part *part)
{
	return load(part, true);
}

/* Each write within one aligned folio, of which there may be a part only at the ends of what is loaded. */
static int write_in_folios(int descriptor, uint64_t offset, const char *data, size_t bytes, uint64_t folio_bytes)
{
	for (size_t done = 0; done < bytes;) {
		uint64_t left = folio_bytes - (offset + done) % folio_bytes;
		ssize_t written = pwrite(descriptor, data + done, left < bytes - done ? left : bytes - done,
					 (off_t)(offset + done));

		if (written <= 0)
			return written ? -errno : -EIO;
		done += (size_t)written;
	}
	return 0;
}

int cache_load_in_folios(const struct cache_part *part, unsigned int order)
{
	uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t folio_bytes = page_bytes << (order < LOAD_FOLIO_ORDER_MAX ? order : LOAD_FOLIO_ORDER_MAX);
	uint64_t chunk_bytes = folio_bytes > REWRITE_BYTES ? folio_bytes : REWRITE_BYTES;
	__attribute__((cleanup(unmap))) struct mapping copy = {
		mmap(NULL, chunk_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), chunk_bytes};

	if (copy.address == MAP_FAILED)
		return -errno;
	for (uint64_t at = part->from, bytes; at < part->end && !atomic_load(part->stop); at += bytes) {
		bytes = chunk_bytes - at % chunk_bytes;
		bytes = bytes < part->end - at ? bytes : part->end - at;
		int error = populate_chunk(part->descriptor, at, bytes, false, copy.address);

		if (error)
			return error;
		/* What is cached already keeps its folio. */
		posix_fadvise(part->descriptor, (off_t)at, (off_t)bytes, POSIX_FADV_DONTNEED);
		error = write_in_folios(part->descriptor, at, copy.address, bytes, folio_bytes);
		if (error)
			return error;
		/* Begun early, so that no dirty pages gather. */
		(void)sync_file_range(part->descriptor, (off64_t)at, (off64_t)bytes, SYNC_FILE_RANGE_WRITE);
	}
	return fdatasync(part->descriptor) < 0 ? -errno : 0;
}

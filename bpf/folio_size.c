// SPDX-License-Identifier: Apache-2.0
/*
 * Turns a cached page of a file into the size of its folio.
 *
 * The kernel tells that of page frames only, and the number of a frame only of a page that is mapped: so it is, for a
 * moment. MADV_RANDOM keeps the kernel from reading ahead, and populating fails, where touching would end us, if the file
 * was truncated meanwhile. The page counts as referenced once. A folio has neighbouring frames, of
 * which the first is a multiple of their number and all others are marked as its tail.
 */
#include "folio_size.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* since Linux 5.14 */
#endif

/* Documentation/admin-guide/mm/pagemap.rst */
#define PAGEMAP_PRESENT (1ull << 63)
#define PAGEMAP_FRAME ((1ull << 55) - 1)
#define PAGE_FLAG_COMPOUND_TAIL (1ull << 16)

void folio_size_init(struct folio_size *folio_size)
{
	folio_size->pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	folio_size->page_flags = open("/proc/kpageflags", O_RDONLY | O_CLOEXEC);
}

static int read_entry(int descriptor, uint64_t index, uint64_t *entry)
{
	ssize_t bytes = pread(descriptor, entry, sizeof(*entry), index * sizeof(*entry));
	if (bytes < 0)
		return -errno;
	return bytes == sizeof(*entry) ? 0 : -ENODATA;
}

static int find_frame(const struct folio_size *folio_size, void *map, size_t page_bytes, uint64_t *frame)
{
	uint64_t entry = 0;
	if (madvise(map, page_bytes, MADV_RANDOM) || madvise(map, page_bytes, MADV_POPULATE_READ))
		return -errno;
	int error = read_entry(folio_size->pagemap, (uintptr_t)map / page_bytes, &entry);
	if (error)
		return error;
	*frame = entry & PAGEMAP_FRAME;
	/* Without CAP_SYS_ADMIN the kernel says 0 for every frame. */
	return (entry & PAGEMAP_PRESENT) && *frame ? 0 : -EPERM;
}

/* A folio that reaches over the middle of an aligned block of frames, where it has a tail, has at least that block. */
static int order_of_frame(const struct folio_size *folio_size, uint64_t frame)
{
	for (int order = 0; order < FOLIO_ORDER_MAX; order++) {
		uint64_t flags = 0, block = frame >> (order + 1) << (order + 1);
		int error = read_entry(folio_size->page_flags, block + (1ull << order), &flags);
		if (error == -ENODATA)
			return order; /* memory ends here */
		if (error)
			return error;
		if (!(flags & PAGE_FLAG_COMPOUND_TAIL))
			return order;
	}
	return FOLIO_ORDER_MAX;
}

int folio_size_order(const struct folio_size *folio_size, int descriptor, uint64_t page)
{
	size_t page_bytes = sysconf(_SC_PAGESIZE);
	uint64_t frame = 0;
	if (folio_size->pagemap < 0 || folio_size->page_flags < 0)
		return -EPERM;
	void *map = mmap(NULL, page_bytes, PROT_READ, MAP_SHARED, descriptor, page * page_bytes);
	if (map == MAP_FAILED)
		return -errno;
	int error = find_frame(folio_size, map, page_bytes, &frame);
	munmap(map, page_bytes);
	return error ? error : order_of_frame(folio_size, frame);
}

void folio_size_deinit(struct folio_size *folio_size)
{
	if (folio_size->pagemap >= 0)
		close(folio_size->pagemap);
	if (folio_size->page_flags >= 0)
		close(folio_size->page_flags);
}

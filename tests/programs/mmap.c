// SPDX-License-Identifier: Apache-2.0
/*
 * Loads and stores on mapped files, each on a prime number of pages. Tells the pages that it touched as lines of told.h of
 * the kinds load and store (of whole pages, since a page is what the kernel notices), and what it did besides.
 *
 *	mmap DIRECTORY
 */
#include <sys/mman.h>

#include "told.h"

enum {
	PAGE_BYTES = 4096,
	FILE_PAGES = 997,
};

static void touched(const char *kind, const char *name, int64_t page, int64_t missed)
{
	tell(gettid(), kind, name, page * PAGE_BYTES, PAGE_BYTES, PAGE_BYTES, SOURCE_MMAP, IO_ESTIMATED, missed);
}

/* The descriptor is closed at once: a mapping lives on without. */
static char *map(const char *name, int protection, int flags, int advice)
{
	int file = open_file(name, O_RDWR);
	char *memory = mmap(NULL, FILE_PAGES * PAGE_BYTES, protection, flags, file, 0);
	if (memory == MAP_FAILED || madvise(memory, FILE_PAGES * PAGE_BYTES, advice))
		err(1, "mmap %s", name);
	close_file(name, file);
	return memory;
}

/* Tells how much of a mapping the kernel has mapped by entries of 2 MiB: "whole NAME BYTES". */
static void tell_mapped_whole(const char *name, const char *memory)
{
	FILE *maps = fopen("/proc/self/smaps", "r");
	char line[PATH_ROOM];
	unsigned long first, end, kib;
	bool within = false;
	if (!maps)
		err(1, "/proc/self/smaps");
	while (fgets(line, sizeof(line), maps)) {
		if (sscanf(line, "%lx-%lx ", &first, &end) == 2)
			within = first <= (unsigned long)memory && (unsigned long)memory < end;
		else if (within && sscanf(line, "FilePmdMapped: %lu", &kib) == 1)
			printf("whole %s %lu\n", name, kib * 1024);
	}
	fclose(maps);
}

static void unmap(char *memory)
{
	if (munmap(memory, FILE_PAGES * PAGE_BYTES))
		err(1, "munmap");
}

static void make_cold(const char *name)
{
	make_file(name, FILE_PAGES * PAGE_BYTES);
	int file = open_file(name, O_RDONLY);
	did_file("fadvise", name, 0, 0, posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED), POSIX_FADV_DONTNEED << 16);
	close_file(name, file);
}

/* In the page cache page by page: what is written at once may be there as large folios, which are mapped whole. */
static void make_in_pages(const char *name)
{
	char page[PAGE_BYTES] = {0};
	int file = open_file(name, O_WRONLY | O_CREAT | O_EXCL);
	for (int64_t i = 0; i < FILE_PAGES; i++)
		did("write", name, i * PAGE_BYTES, PAGE_BYTES, pwrite(file, page, PAGE_BYTES, i * PAGE_BYTES),
		    SOURCE_SYSCALL, IO_POSITIONED);
	close_file(name, file);
}

static void load(const char *name, const char *memory, int64_t pages, int64_t step, int64_t missed)
{
	for (int64_t i = 0; i < pages; i++) {
		(void)*(const volatile char *)(memory + i * step * PAGE_BYTES + 1009);
		touched("load", name, i * step, missed);
	}
}

static void store(const char *name, char *memory, int64_t first, int64_t pages, int64_t step)
{
	for (int64_t i = 0; i < pages; i++) {
		*(volatile char *)(memory + (first + i * step) * PAGE_BYTES + 1013) = 'z';
		touched("store", name, first + i * step, MISSED_UNKNOWN);
	}
}

/* Twice on the same pages: the second time nothing happens that anybody could see. */
static void do_loads(void)
{
	make_cold("cold-random");
	char *memory = map("cold-random", PROT_READ, MAP_SHARED, MADV_RANDOM);
	load("cold-random", memory, 13, 41, PAGE_BYTES);
	load("cold-random", memory, 13, 41, 0);
	unmap(memory);

	make_cold("cold-normal");
	memory = map("cold-normal", PROT_READ, MAP_SHARED, MADV_NORMAL);
	load("cold-normal", memory, 11, 89, MISSED_UNKNOWN);
	unmap(memory);

	make_in_pages("warm");
	memory = map("warm", PROT_READ, MAP_SHARED, MADV_NORMAL);
	load("warm", memory, 17, 53, 0);
	unmap(memory);
	memory = map("warm", PROT_READ, MAP_SHARED, MADV_RANDOM);
	load("warm", memory, 19, 47, 0);
	unmap(memory);

	make_file("warm-large", FILE_PAGES * PAGE_BYTES);
	memory = map("warm-large", PROT_READ, MAP_SHARED, MADV_NORMAL);
	load("warm-large", memory, 17, 53, 0);
	tell_mapped_whole("warm-large", memory);
	unmap(memory);
}

static void do_stores(void)
{
	make_file("stored", FILE_PAGES * PAGE_BYTES);
	char *memory = map("stored", PROT_READ | PROT_WRITE, MAP_SHARED, MADV_NORMAL);
	store("stored", memory, 3, 23, 31);
	did_file("msync", "stored", 0, FILE_PAGES * PAGE_BYTES, msync(memory, FILE_PAGES * PAGE_BYTES, MS_SYNC),
		 MS_SYNC << 16);
	/* Clean again, so that the next store is noticed again. */
	store("stored", memory, 3, 7, 31);
	did_file("msync", "stored", 5 * PAGE_BYTES, 101 * PAGE_BYTES,
		 msync(memory + 5 * PAGE_BYTES, 101 * PAGE_BYTES, MS_ASYNC), MS_ASYNC << 16);
	unmap(memory);

	make_cold("stored-cold");
	memory = map("stored-cold", PROT_READ | PROT_WRITE, MAP_SHARED, MADV_RANDOM);
	store("stored-cold", memory, 0, 11, 61);
	unmap(memory);

	/* A private copy is no change of the file: its page is read, nothing is written. */
	make_file("private", FILE_PAGES * PAGE_BYTES);
	memory = map("private", PROT_READ | PROT_WRITE, MAP_PRIVATE, MADV_NORMAL);
	for (int i = 0; i < 13; i++) {
		memory[i * 67 * PAGE_BYTES] = 'z';
		touched("load", "private", i * 67, 0);
	}
	unmap(memory);

	/* Memory that is no file. */
	memory = mmap(NULL, FILE_PAGES * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memset(memory, 'z', FILE_PAGES * PAGE_BYTES);
	unmap(memory);
}

int main(int argc, char **argv)
{
	if (argc != 2)
		errx(2, "usage: mmap DIRECTORY");
	told_init(argv[1]);
	do_loads();
	do_stores();
	return 0;
}

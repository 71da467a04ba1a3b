// SPDX-License-Identifier: Apache-2.0
/*
 * Loads of a block device through one file, for the test to compare its requests with the operations. Tells what it did as
 * told.h says; missed is what mincore(2) said before a read.
 *
 *	load DIRECTORY prepare     makes the file "data", on the device and not in the page cache
 *	load DIRECTORY MODE        one of the table at the end
 */
#include <liburing.h>
#include <linux/aio_abi.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "told.h"

enum {
	PAGE_BYTES = 4096,
	FILE_PAGES = 1499,
	OPERATIONS = 199,
	BATCH = 13,
	SEQUENTIAL_BYTES = 65539,
	RANDOM_BYTES = 5003,
};

static char *buffer;
static int file;
static bool writes;

/* Pages in an order without a pattern and without repetition: both numbers are primes. */
static int64_t scattered_page(int64_t i)
{
	return i * 577 % FILE_PAGES;
}

static void say(int64_t offset, int64_t bytes, int64_t result, int source, unsigned int flags)
{
	did(writes ? "write" : "read", "data", offset, bytes, result, source, flags | IO_POSITIONED);
}

static void direct_by_syscall(void)
{
	for (int64_t i = 0; i < OPERATIONS; i++) {
		int64_t offset = scattered_page(i) * PAGE_BYTES;
		say(offset, PAGE_BYTES,
		    writes ? pwrite(file, buffer, PAGE_BYTES, offset) : pread(file, buffer, PAGE_BYTES, offset),
		    SOURCE_SYSCALL, IO_DIRECT);
	}
}

static void direct_by_aio(void)
{
	aio_context_t context = 0;
	if (syscall(SYS_io_setup, BATCH, &context))
		err(1, "io_setup");
	for (int64_t i = 0; i + BATCH <= OPERATIONS; i += BATCH) {
		struct iocb blocks[BATCH], *pointers[BATCH];
		struct io_event events[BATCH];
		for (int j = 0; j < BATCH; j++) {
			int64_t offset = scattered_page(i + j) * PAGE_BYTES;
			blocks[j] = (struct iocb){.aio_data = offset,
						  .aio_lio_opcode = writes ? IOCB_CMD_PWRITE : IOCB_CMD_PREAD,
						  .aio_fildes = file,
						  .aio_buf = (uintptr_t)buffer + j * PAGE_BYTES,
						  .aio_nbytes = PAGE_BYTES,
						  .aio_offset = offset};
			pointers[j] = &blocks[j];
		}
		expect("io_submit", syscall(SYS_io_submit, context, BATCH, pointers), BATCH);
		expect("io_getevents", syscall(SYS_io_getevents, context, BATCH, BATCH, events, NULL), BATCH);
		for (int j = 0; j < BATCH; j++)
			say(events[j].data, PAGE_BYTES, events[j].res, SOURCE_AIO, IO_DIRECT);
	}
	syscall(SYS_io_destroy, context);
}

static void direct_by_io_uring(void)
{
	struct io_uring ring;
	if (io_uring_queue_init(BATCH, &ring, 0))
		errx(1, "io_uring_queue_init");
	for (int64_t i = 0; i + BATCH <= OPERATIONS; i += BATCH) {
		for (int j = 0; j < BATCH; j++) {
			int64_t offset = scattered_page(i + j) * PAGE_BYTES;
			struct io_uring_sqe *entry = io_uring_get_sqe(&ring);
			if (writes)
				io_uring_prep_write(entry, file, buffer + j * PAGE_BYTES, PAGE_BYTES, offset);
			else
				io_uring_prep_read(entry, file, buffer + j * PAGE_BYTES, PAGE_BYTES, offset);
			io_uring_sqe_set_data64(entry, offset);
		}
		expect("io_uring_submit", io_uring_submit(&ring), BATCH);
		for (int j = 0; j < BATCH; j++) {
			struct io_uring_cqe *event;
			if (io_uring_wait_cqe(&ring, &event))
				errx(1, "io_uring_wait_cqe");
			say(io_uring_cqe_get_data64(event), PAGE_BYTES, event->res, SOURCE_IO_URING, IO_DIRECT);
			io_uring_cqe_seen(&ring, event);
		}
	}
	io_uring_queue_exit(&ring);
}

/*
 * Bytes of a range that came from the device and that no read has taken: of pages that mincore says are not there yet, and
 * of those pages what an earlier read left.
 */
static int64_t untaken_bytes(unsigned char *mapping, bool *untaken, int64_t offset, int64_t bytes)
{
	unsigned char resident[RANDOM_BYTES / PAGE_BYTES + 2];
	int64_t first = offset / PAGE_BYTES * PAGE_BYTES, count = 0;
	if (mincore(mapping + first, offset + bytes - first, resident))
		err(1, "mincore");
	for (int64_t page = first; page < offset + bytes; page += PAGE_BYTES)
		if (!(resident[(page - first) / PAGE_BYTES] & 1))
			memset(untaken + page, true, PAGE_BYTES);
	for (int64_t at = offset; at < offset + bytes; at++) {
		count += untaken[at];
		untaken[at] = false;
	}
	return count;
}

static void read_scattered(void)
{
	unsigned char *mapping = mmap(NULL, FILE_PAGES * PAGE_BYTES, PROT_READ, MAP_SHARED, file, 0);
	bool *untaken = calloc(FILE_PAGES, PAGE_BYTES);
	if (mapping == MAP_FAILED || !untaken)
		err(1, "mmap");
	posix_fadvise(file, 0, 0, POSIX_FADV_RANDOM);
	for (int64_t i = 0; i < OPERATIONS; i++) {
		/* Every other one overlaps the one before, so that a part is there already. */
		int64_t offset = scattered_page(i - i % 2) * PAGE_BYTES / 2 + i % 2 * 1009;
		int64_t missed = untaken_bytes(mapping, untaken, offset, RANDOM_BYTES);
		int64_t result = pread(file, buffer, RANDOM_BYTES, offset);
		tell(gettid(), "read", "data", offset, RANDOM_BYTES, result, SOURCE_SYSCALL, IO_POSITIONED, missed);
	}
	munmap(mapping, FILE_PAGES * PAGE_BYTES);
	free(untaken);
}

/* Twice: the first pass takes everything from the device, though the kernel reads ahead; the second takes nothing. */
static void read_sequentially(void)
{
	for (int pass = 0; pass < 2; pass++)
		for (int64_t offset = 0; offset < FILE_PAGES * PAGE_BYTES; offset += SEQUENTIAL_BYTES) {
			int64_t result = pread(file, buffer, SEQUENTIAL_BYTES, offset);
			tell(gettid(), "read", "data", offset, SEQUENTIAL_BYTES, result, SOURCE_SYSCALL, IO_POSITIONED,
			     pass ? 0 : result);
		}
}

static void write_scattered(void)
{
	for (int64_t i = 0; i < OPERATIONS; i++) {
		int64_t offset = scattered_page(i) / 3 * 3 * PAGE_BYTES;
		say(offset, PAGE_BYTES, pwrite(file, buffer, PAGE_BYTES, offset), SOURCE_SYSCALL, 0);
	}
}

static void write_and_sync(void)
{
	write_scattered();
	did_file("fsync", "data", 0, 0, fsync(file), 0);
}

/* Somebody else has the pages written back. */
static void write_and_wait(void)
{
	char line[16];
	write_scattered();
	printf("dirtied\n");
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		errx(1, "no line on the standard input");
}

/* Without O_TRUNC, so that a second preparation keeps the blocks. */
static void prepare(void)
{
	for (int64_t page = 0; page < FILE_PAGES; page++)
		expect("write", write(file, buffer, PAGE_BYTES), PAGE_BYTES);
	expect("fsync", fsync(file), 0);
	expect("fadvise", posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED), 0);
}

static const struct {
	const char *name;
	void (*run)(void);
	int open_flags;
	bool writes;
} modes[] = {
	{"prepare", prepare, O_RDWR | O_CREAT, true},
	{"direct-syscall-read", direct_by_syscall, O_RDONLY | O_DIRECT, false},
	{"direct-syscall-write", direct_by_syscall, O_WRONLY | O_DIRECT, true},
	{"direct-aio-read", direct_by_aio, O_RDONLY | O_DIRECT, false},
	{"direct-aio-write", direct_by_aio, O_WRONLY | O_DIRECT, true},
	{"direct-io_uring-read", direct_by_io_uring, O_RDONLY | O_DIRECT, false},
	{"direct-io_uring-write", direct_by_io_uring, O_WRONLY | O_DIRECT, true},
	{"cold-random", read_scattered, O_RDONLY, false},
	{"cold-sequential", read_sequentially, O_RDONLY, false},
	{"write-fsync", write_and_sync, O_RDWR, true},
	{"write-back", write_and_wait, O_RDWR, true},
};

int main(int argc, char **argv)
{
	if (argc != 3)
		errx(2, "usage: load DIRECTORY MODE");
	told_init(argv[1]);
	if (posix_memalign((void **)&buffer, PAGE_BYTES, 32 * PAGE_BYTES))
		errx(1, "no memory");
	memset(buffer, 'x', 32 * PAGE_BYTES);
	for (size_t i = 0; i < sizeof(modes) / sizeof(*modes); i++) {
		if (strcmp(modes[i].name, argv[2]))
			continue;
		char path[PATH_ROOM];
		writes = modes[i].writes;
		file = open(path_of("data", path), modes[i].open_flags, 0600);
		if (file < 0)
			err(1, "open %s", path);
		modes[i].run();
		close(file);
		return 0;
	}
	errx(2, "no mode %s", argv[2]);
}

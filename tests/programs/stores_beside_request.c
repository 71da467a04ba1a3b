// SPDX-License-Identifier: Apache-2.0
/*
 * Stores to mapped files while a direct read that io_uring has begun in the thread, behind another one that it waited
 * for, is in flight: no system call comes in between.
 *
 *	stores_beside_request DIRECTORY
 *
 * Tells how many files, each of a page, were stored to.
 */
#include <liburing.h>
#include <sys/mman.h>
#include <time.h>

#include "told.h"

enum {
	PAGE_BYTES = 4096,
	READ_BYTES = 1 << 26,
	FILES = 61,
	PAUSE_NS = 200 * 1000,
};

/* Each is there, clean, and mapped for reading. */
static volatile char *map_file(int number)
{
	char name[16];
	snprintf(name, sizeof(name), "stored-%d", number);
	make_file(name, PAGE_BYTES);
	int file = open_file(name, O_RDWR);
	volatile char *data = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (data == MAP_FAILED || fsync(file))
		err(1, "%s", name);
	(void)data[0];
	close(file);
	return data;
}

static void pause_in_program(void)
{
	struct timespec begun, now;
	clock_gettime(CLOCK_MONOTONIC, &begun);
	do
		clock_gettime(CLOCK_MONOTONIC, &now);
	while ((now.tv_sec - begun.tv_sec) * 1000000000 + now.tv_nsec - begun.tv_nsec < PAUSE_NS);
}

static void take(struct io_uring *ring, int bytes)
{
	struct io_uring_cqe *event;
	if (io_uring_wait_cqe(ring, &event))
		errx(1, "io_uring_wait_cqe");
	expect("read", event->res, bytes);
	io_uring_cqe_seen(ring, event);
}

int main(int argc, char **argv)
{
	struct io_uring ring;
	volatile char *stored[FILES];
	char *data;
	if (argc != 2 || posix_memalign((void **)&data, PAGE_BYTES, READ_BYTES))
		errx(2, "usage: stores_beside_request DIRECTORY");
	told_init(argv[1]);
	make_file("direct", READ_BYTES);
	for (int i = 0; i < FILES; i++)
		stored[i] = map_file(i);
	int file = open_file("direct", O_RDONLY | O_DIRECT);
	if (io_uring_queue_init(2, &ring, 0))
		errx(1, "io_uring_queue_init");
	struct io_uring_sqe *entry = io_uring_get_sqe(&ring);
	io_uring_prep_read(entry, file, data, PAGE_BYTES, 0);
	io_uring_sqe_set_flags(entry, IOSQE_IO_LINK);
	io_uring_prep_read(io_uring_get_sqe(&ring), file, data, READ_BYTES, 0);
	expect("io_uring_submit", io_uring_submit(&ring), 2);
	for (int i = 0; i < FILES; i++) {
		pause_in_program();
		stored[i][0] = 1;
	}
	take(&ring, PAGE_BYTES);
	take(&ring, READ_BYTES);
	printf("stored %d\n", FILES);
	return 0;
}

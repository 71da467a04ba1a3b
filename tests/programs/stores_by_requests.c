// SPDX-License-Identifier: Apache-2.0
/*
 * Reads of io_uring or io_submit, one at a time, into mapped pages of files that are there and clean, which makes them dirty.
 *
 *	stores_by_requests DIRECTORY io_uring|io_submit buffered|direct
 */
#include <liburing.h>
#include <linux/aio_abi.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "told.h"

enum {
	PAGE_BYTES = 4096,
	FILES = 61,
};

static char *map_file(int number)
{
	char name[16];
	snprintf(name, sizeof(name), "stored-%d", number);
	make_file(name, PAGE_BYTES);
	int file = open_file(name, O_RDWR);
	char *data = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (data == MAP_FAILED || fsync(file))
		err(1, "%s", name);
	*(volatile char *)data;
	close(file);
	return data;
}

static void read_by_ring(int file, char **stored)
{
	struct io_uring ring;
	if (io_uring_queue_init(2, &ring, 0))
		errx(1, "io_uring_queue_init");
	for (int i = 0; i < FILES; i++) {
		struct io_uring_cqe *event;
		io_uring_prep_read(io_uring_get_sqe(&ring), file, stored[i], PAGE_BYTES, 0);
		expect("io_uring_submit", io_uring_submit(&ring), 1);
		expect("io_uring_wait_cqe", io_uring_wait_cqe(&ring, &event), 0);
		expect("read", event->res, PAGE_BYTES);
		io_uring_cqe_seen(&ring, event);
	}
}

static void read_by_submit(int file, char **stored)
{
	aio_context_t context = 0;
	expect("io_setup", syscall(SYS_io_setup, 2, &context), 0);
	for (int i = 0; i < FILES; i++) {
		struct io_event event;
		struct iocb request = {.aio_lio_opcode = IOCB_CMD_PREAD,
				       .aio_fildes = file,
				       .aio_buf = (uintptr_t)stored[i],
				       .aio_nbytes = PAGE_BYTES},
			    *requests[] = {&request};
		expect("io_submit", syscall(SYS_io_submit, context, 1, requests), 1);
		expect("io_getevents", syscall(SYS_io_getevents, context, 1, 1, &event, NULL), 1);
		expect("read", event.res, PAGE_BYTES);
	}
}

int main(int argc, char **argv)
{
	char *stored[FILES];
	if (argc != 4)
		errx(2, "usage: stores_by_requests DIRECTORY io_uring|io_submit buffered|direct");
	told_init(argv[1]);
	make_file("read", PAGE_BYTES);
	for (int i = 0; i < FILES; i++)
		stored[i] = map_file(i);
	int file = open_file("read", O_RDONLY | (strcmp(argv[3], "direct") ? 0 : O_DIRECT));
	if (strcmp(argv[2], "io_uring"))
		read_by_submit(file, stored);
	else
		read_by_ring(file, stored);
	printf("stored %d\n", FILES);
	return 0;
}

// SPDX-License-Identifier: Apache-2.0
/*
 * Writes by an io_uring, to a file system that is frozen meanwhile, while reads of as many bytes, of a file that is not recorded,
 * find no room for their completions. Prints a time (CLOCK_MONOTONIC, ns) at which the write was still held up.
 *
 *	alike DIRECTORY
 */
#include <err.h>
#include <fcntl.h>
#include <liburing.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum {
	ENTRIES = 4,
	COMPLETIONS = 2 * ENTRIES, /* for which the kernel makes room */
	WRITE_BYTES = 101,
};

static void check(const char *what, int result, int wanted)
{
	if (result != wanted)
		errx(1, "%s: %d (%s)", what, result, result < 0 ? strerror(-result) : "not as expected");
}

static void read_zeroes(struct io_uring *ring, int count)
{
	static char zeroes[WRITE_BYTES];
	int file = open("/dev/zero", O_RDONLY);
	if (file < 0)
		err(1, "/dev/zero");
	for (int i = 0; i < count; i++) {
		io_uring_prep_read(io_uring_get_sqe(ring), file, zeroes, WRITE_BYTES, 0);
		check("io_uring_submit", io_uring_submit(ring), 1);
	}
	close(file);
}

int main(int argc, char **argv)
{
	static const char data[WRITE_BYTES];
	struct io_uring ring;
	struct timespec now;
	struct io_uring_cqe *event;
	if (argc != 2)
		errx(2, "usage: alike DIRECTORY");
	int directory = open(argv[1], O_RDONLY | O_DIRECTORY);
	int file = openat(directory, "written", O_WRONLY | O_CREAT, 0600);
	if (directory < 0 || file < 0)
		err(1, "%s", argv[1]);
	check("io_uring_queue_init", io_uring_queue_init(ENTRIES, &ring, 0), 0);
	if (ioctl(directory, FIFREEZE, 0))
		err(1, "FIFREEZE %s", argv[1]);
	io_uring_prep_write(io_uring_get_sqe(&ring), file, data, WRITE_BYTES, 0);
	check("io_uring_submit", io_uring_submit(&ring), 1);
	read_zeroes(&ring, COMPLETIONS + 1);
	clock_gettime(CLOCK_MONOTONIC, &now);
	if (ioctl(directory, FITHAW, 0))
		err(1, "FITHAW %s", argv[1]);
	for (int i = 0; i < COMPLETIONS + 2; i++) {
		check("io_uring_wait_cqe", io_uring_wait_cqe(&ring, &event), 0);
		check("read or write", event->res, WRITE_BYTES);
		io_uring_cqe_seen(&ring, event);
	}
	io_uring_queue_exit(&ring);
	printf("%lld\n", now.tv_sec * 1000000000ll + now.tv_nsec);
	return 0;
}

// SPDX-License-Identifier: Apache-2.0
/*
 * A process whose io_uring does a write and tells nobody, and behind it as many more with a ring that does something without a
 * word as COUNT says, all there until the last one is. Tells the write as told.h says.
 *
 *	many_rings DIRECTORY COUNT
 */
#include <liburing.h>
#include <sys/wait.h>

#include "told.h"

enum { WRITE_BYTES = 101 };

static int arrivals[2], departure[2]; /* pipes: a byte of each process that is there; closed when all may end */

static void submit(struct io_uring *ring, struct io_uring_sqe *entry, unsigned int flags)
{
	io_uring_sqe_set_flags(entry, flags | IOSQE_CQE_SKIP_SUCCESS);
	expect("io_uring_submit", io_uring_submit(ring), 1);
}

/* By a worker of the kernel, so that nothing tells when it is done but the file. */
static void write_silently(struct io_uring *ring, int file)
{
	static const char data[WRITE_BYTES];
	struct stat status = {};
	struct io_uring_sqe *entry = io_uring_get_sqe(ring);
	io_uring_prep_write(entry, file, data, WRITE_BYTES, 0);
	submit(ring, entry, IOSQE_ASYNC);
	while (status.st_size < WRITE_BYTES) {
		usleep(100);
		if (fstat(file, &status))
			err(1, "fstat");
	}
	tell(gettid(), "write", "silent", 0, WRITE_BYTES, WRITE_BYTES, SOURCE_IO_URING, IO_POSITIONED, MISSED_UNKNOWN);
	fflush(stdout);
}

static void advise_silently(struct io_uring *ring, int file)
{
	struct io_uring_sqe *entry = io_uring_get_sqe(ring);
	io_uring_prep_fadvise(entry, file, 0, WRITE_BYTES, POSIX_FADV_NORMAL);
	submit(ring, entry, 0);
}

static void live(void (*act)(struct io_uring *ring, int file), int file)
{
	struct io_uring ring;
	char byte = 0;
	close(departure[1]);
	int error = io_uring_queue_init(1, &ring, 0);
	if (error)
		errx(1, "io_uring_queue_init: %s", strerror(-error));
	act(&ring, file);
	expect("write to a pipe", write(arrivals[1], &byte, 1), 1);
	expect("read of a pipe", read(departure[0], &byte, 1), 0);
	_exit(0);
}

/* Until the new process is there. */
static void start(void (*act)(struct io_uring *ring, int file), int file)
{
	char byte;
	pid_t process = fork();
	if (process < 0)
		err(1, "fork");
	if (!process)
		live(act, file);
	expect("read of a pipe", read(arrivals[0], &byte, 1), 1);
}

int main(int argc, char **argv)
{
	if (argc != 3)
		errx(2, "usage: many_rings DIRECTORY COUNT");
	int count = atoi(argv[2]), status;
	told_init(argv[1]);
	int file = open_file("silent", O_RDWR | O_CREAT | O_EXCL);
	if (pipe(arrivals) || pipe(departure))
		err(1, "pipe");
	fflush(stdout);
	start(write_silently, file);
	for (int i = 0; i < count; i++)
		start(advise_silently, file);
	close(departure[1]);
	for (int i = 0; i <= count; i++)
		if (wait(&status) < 0 || status)
			errx(1, "a process with a ring failed");
	return 0;
}

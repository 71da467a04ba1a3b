// SPDX-License-Identifier: Apache-2.0
/*
 * Opens a file again and again by io_uring, with the close of the descriptor that it will get behind it in the same
 * batch: the kernel tells the ends of both when both are done.
 *
 *	closed_in_batch FILE
 *
 * Tells how often it was opened.
 */
#include <err.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdio.h>
#include <unistd.h>

enum { OPENS = 101 };

static void take(struct io_uring *ring)
{
	struct io_uring_cqe *event;
	if (io_uring_wait_cqe(ring, &event))
		errx(1, "io_uring_wait_cqe");
	if (event->res < 0)
		errx(1, "a request failed: %d", event->res);
	io_uring_cqe_seen(ring, event);
}

int main(int count, char **arguments)
{
	struct io_uring ring;
	if (count != 2 || io_uring_queue_init(2, &ring, 0))
		errx(1, "closed_in_batch FILE");
	int descriptor = open(arguments[1], O_RDONLY);
	if (descriptor < 0 || close(descriptor))
		err(1, "%s", arguments[1]);
	for (int i = 1; i < OPENS; i++) {
		io_uring_prep_openat(io_uring_get_sqe(&ring), AT_FDCWD, arguments[1], O_RDONLY, 0);
		io_uring_prep_close(io_uring_get_sqe(&ring), descriptor);
		if (io_uring_submit(&ring) != 2)
			errx(1, "io_uring_submit");
		take(&ring);
		take(&ring);
	}
	printf("%d\n", OPENS);
	return 0;
}

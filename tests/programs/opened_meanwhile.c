// SPDX-License-Identifier: Apache-2.0
/*
 * Requests of an io_uring on a descriptor that is opened while they wait. Tells what it did as told.h says, but for those of
 * which nothing says, when they are done, which file they were on: "unknown N" for N splices and as many closes.
 *
 *	opened_meanwhile DIRECTORY
 */
#include "ring_batch.h"

enum { ROUNDS = 7, READ_BYTES = 103, SPLICE_BYTES = 101 };

static int gate[2], other_pipe[2];

/* Three requests on a descriptor behind one that waits for a byte in the gate. */
static void submit(struct io_uring *ring, int descriptor, int64_t offset)
{
	struct io_uring_sqe *entry = io_uring_get_sqe(ring);
	io_uring_prep_read(entry, gate[0], block_of(1), 1, 0);
	add(ring, "read", "file", descriptor, READ_BYTES, offset, IOSQE_IO_DRAIN, IO_LINKED);
	entry = io_uring_get_sqe(ring);
	io_uring_prep_splice(entry, descriptor, 0, other_pipe[1], -1, SPLICE_BYTES, 0);
	io_uring_sqe_set_flags(entry, IOSQE_IO_DRAIN);
	entry = io_uring_get_sqe(ring);
	io_uring_prep_close(entry, descriptor);
	io_uring_sqe_set_flags(entry, IOSQE_IO_DRAIN);
	expect("io_uring_submit", io_uring_submit(ring), 4);
}

int main(int argc, char **argv)
{
	struct io_uring ring;
	if (argc != 2)
		errx(2, "usage: opened_meanwhile DIRECTORY");
	told_init(argv[1]);
	if (pipe(gate) || pipe(other_pipe) || posix_memalign((void **)&buffer, BLOCK_BYTES, 2 * BLOCK_BYTES))
		err(1, "pipes and memory");
	ring_init(&ring, 0);
	make_file("file", ROUNDS * READ_BYTES);
	int free_descriptor = dup(gate[0]);
	close(free_descriptor);
	for (int round = 0; round < ROUNDS; round++) {
		submit(&ring, free_descriptor, round * READ_BYTES);
		expect("open", open_file("file", O_RDONLY), free_descriptor);
		expect("write", write(gate[1], "x", 1), 1);
		expect("read of the gate", take_result(&ring), 1);
		tell_request(&requests[0], take_result(&ring));
		request_count = 0;
		expect("splice", take_result(&ring), SPLICE_BYTES);
		expect("close", take_result(&ring), 0);
		expect("read", read(other_pipe[0], buffer, SPLICE_BYTES), SPLICE_BYTES);
	}
	printf("unknown %d\n", ROUNDS);
	io_uring_queue_exit(&ring);
	return 0;
}

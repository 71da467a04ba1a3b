// SPDX-License-Identifier: Apache-2.0
/*
 * Ends the tracing, over and over, of a process that keeps the program busy which takes longest: completions for which their
 * ring has no room are looked for among all. Tells how many records came by then, and how many later.
 *
 *	late_records FILE ROUNDS
 */
#include <fcntl.h>
#include <liburing.h>

#include "tracing.h"

enum {
	ENTRIES = 4,
	BATCHES = 16, /* whose completions nobody takes meanwhile */
	ROUND_US = 10000,
};

static const char *const programs[] = {"io_uring_submit_req", "io_uring_submit_sqe", "io_uring_complete",
				       "io_uring_complete_scalars", "io_uring_cqe_overflow"};

static void overflow(const char *path)
{
	struct io_uring ring;
	struct io_uring_cqe *event;
	char byte;
	int file = open(path, O_RDONLY);
	if (file < 0 || io_uring_queue_init(ENTRIES, &ring, 0))
		err(1, "%s", path);
	for (;;) {
		for (int request = 0; request < BATCHES * ENTRIES; request++) {
			io_uring_prep_read(io_uring_get_sqe(&ring), file, &byte, 1, 0);
			if (request % ENTRIES == ENTRIES - 1 && io_uring_submit(&ring) != ENTRIES)
				errx(1, "io_uring_submit");
		}
		for (int request = 0; request < BATCHES * ENTRIES; request++) {
			if (io_uring_wait_cqe(&ring, &event))
				errx(1, "io_uring_wait_cqe");
			io_uring_cqe_seen(&ring, event);
		}
	}
}

int main(int argc, char **argv)
{
	static struct tracing tracing;
	struct tracer *tracer = &tracing.tracer;
	uint64_t late = 0;
	if (argc != 3)
		errx(2, "usage: late_records FILE ROUNDS");
	tracing_init(&tracing);
	tracing_of(&tracing, overflow, argv[1]);
	for (int round = 0; round < atoi(argv[2]); round++) {
		for (size_t i = 0; i < sizeof(programs) / sizeof(*programs); i++)
			if (programs_attach(&tracer->programs, tracer->bpf->obj, programs[i]))
				errx(1, "cannot attach %s", programs[i]);
		if (tracer_adopt(tracer, tracing.child, NULL))
			return 1;
		usleep(ROUND_US);
		tracer_detach(tracer);
		ring_buffer__consume(tracing.rings);
		uint64_t by_then = tracing.io_records;
		usleep(ROUND_US);
		ring_buffer__consume(tracing.rings);
		late += tracing.io_records - by_then;
	}
	printf("%llu %llu\n", (unsigned long long)(tracing.io_records - late), (unsigned long long)late);
	tracing_deinit(&tracing);
	return 0;
}

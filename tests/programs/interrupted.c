// SPDX-License-Identifier: Apache-2.0
/*
 * Chains of direct requests whose success io_uring does not tell, while a thread on each processor is inside pread of cached
 * data: the requests end in interrupts of threads that have nothing to do with them. Tells what it did as told.h says.
 *
 *	interrupted DIRECTORY
 */
#include <liburing.h>
#include <sched.h>
#include <stdatomic.h>

#include "told.h"

enum {
	BLOCK_BYTES = 4096,
	CHAINS = 499,
	CACHED_BYTES = 1 << 20, /* of one pread, so that the thread is in the kernel nearly always */
	PROCESSORS_MAX = 256,
};

static atomic_bool is_over;

static void *read_cached(void *processor)
{
	char *data = malloc(CACHED_BYTES);
	cpu_set_t processors;
	CPU_ZERO(&processors);
	CPU_SET((uintptr_t)processor, &processors);
	if (!data || sched_setaffinity(0, sizeof(processors), &processors))
		err(1, "processor %zu", (size_t)(uintptr_t)processor);
	int file = open_file("cached", O_RDONLY);
	while (!is_over)
		did("read", "cached", 0, CACHED_BYTES, pread(file, data, CACHED_BYTES, 0), SOURCE_SYSCALL,
		    IO_POSITIONED);
	close_file("cached", file);
	free(data);
	return NULL;
}

static void tell_request(const char *kind, int64_t offset, unsigned int flags)
{
	bool is_read = !strcmp(kind, "read");
	tell(gettid(), kind, "direct", offset, BLOCK_BYTES, BLOCK_BYTES, SOURCE_IO_URING,
	     flags | IO_DIRECT | IO_POSITIONED, is_read ? BLOCK_BYTES : MISSED_UNKNOWN);
}

static void run_chains(char *block)
{
	struct io_uring ring;
	int file = open_file("direct", O_RDWR | O_DIRECT);
	int error = io_uring_queue_init(8, &ring, 0);
	if (error)
		errx(1, "io_uring_queue_init: %s", strerror(-error));
	for (int i = 0; i < CHAINS; i++) {
		struct io_uring_cqe *event;
		struct io_uring_sqe *entry = io_uring_get_sqe(&ring);
		io_uring_prep_read(entry, file, block, BLOCK_BYTES, 0);
		io_uring_sqe_set_flags(entry, IOSQE_IO_LINK | IOSQE_CQE_SKIP_SUCCESS);
		entry = io_uring_get_sqe(&ring);
		io_uring_prep_write(entry, file, block, BLOCK_BYTES, BLOCK_BYTES);
		expect("io_uring_submit", io_uring_submit(&ring), 2);
		if (io_uring_wait_cqe(&ring, &event))
			errx(1, "io_uring_wait_cqe");
		expect("written", event->res, BLOCK_BYTES);
		io_uring_cqe_seen(&ring, event);
		tell_request("read", 0, 0);
		tell_request("write", BLOCK_BYTES, IO_LINKED);
	}
	io_uring_queue_exit(&ring);
	close_file("direct", file);
}

int main(int argc, char **argv)
{
	pthread_t readers[PROCESSORS_MAX];
	cpu_set_t processors;
	char *block;
	int count = 0;
	if (argc != 2)
		errx(2, "usage: interrupted DIRECTORY");
	told_init(argv[1]);
	if (posix_memalign((void **)&block, BLOCK_BYTES, BLOCK_BYTES))
		errx(1, "no memory");
	if (sched_getaffinity(0, sizeof(processors), &processors))
		err(1, "sched_getaffinity");
	make_file("cached", CACHED_BYTES);
	make_file("direct", 2 * BLOCK_BYTES);
	for (uintptr_t i = 0; i < PROCESSORS_MAX; i++)
		if (CPU_ISSET(i, &processors) && pthread_create(&readers[count++], NULL, read_cached, (void *)i))
			errx(1, "no thread");
	run_chains(block);
	is_over = true;
	for (int i = 0; i < count; i++)
		pthread_join(readers[i], NULL);
	return 0;
}

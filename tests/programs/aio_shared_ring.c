// SPDX-License-Identifier: Apache-2.0
/*
 * Threads that have one context of io_submit together, each with a struct iocb of its own, for reads of many sizes: whenever one
 * looks at the completion ring, another one may have just looked further.
 *
 *	aio_shared_ring FILE
 *
 * Tells how many reads there were of each size, as lines "SIZE COUNT".
 */
#include <err.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "aio_ring.h"

enum { THREADS = 3, READS = 100003, SIZES = 101 };

static aio_context_t context;
static int file;

static void *read_all_sizes(void *unused)
{
	char buffer[SIZES];
	struct io_event event;
	struct iocb block = {.aio_lio_opcode = IOCB_CMD_PREAD, .aio_fildes = file, .aio_buf = (uintptr_t)buffer};
	struct iocb *address = &block;
	for (int i = 0; i < READS; i++) {
		block.aio_nbytes = 1 + i % SIZES;
		/* Of what is in the page cache the event is there when io_submit returns; any thread takes it. */
		if (syscall(SYS_io_submit, context, 1, &address) != 1 ||
		    syscall(SYS_io_getevents, context, 1, 1, &event, NULL) != 1)
			err(1, "io_submit and io_getevents");
	}
	return unused;
}

int main(int count, char **arguments)
{
	pthread_t threads[THREADS];
	file = count == 2 ? open(arguments[1], O_RDONLY) : -1;
	if (file < 0 || syscall(SYS_io_setup, THREADS, &context))
		err(1, "aio_shared_ring FILE");
	/* The recorder can read only what the program has read before. */
	const struct aio_ring *ring = (const struct aio_ring *)context;
	for (unsigned int i = 0; i < ring->entries; i++)
		(void)*(const volatile __u64 *)&ring->events[i].obj;
	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, read_all_sizes, NULL);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	syscall(SYS_io_destroy, context);
	for (int size = 1; size <= SIZES; size++)
		printf("%d %d\n", size, THREADS * (READS / SIZES + (size <= READS % SIZES)));
	return 0;
}

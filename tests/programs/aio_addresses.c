// SPDX-License-Identifier: Apache-2.0
/*
 * Reads a file of one page by io_submit, every request with a struct iocb at an address of its own: more of them than the
 * recorder has room for at a time, though few are in flight.
 *
 *	aio_addresses FILE COUNT
 */
#include <err.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { BATCH = 31, PAGE_BYTES = 4096 };

int main(int count, char **arguments)
{
	static char page[PAGE_BYTES];
	aio_context_t context = 0;
	long requests = count == 3 ? atol(arguments[2]) : 0;
	struct iocb *blocks = calloc(requests, sizeof(*blocks));
	int file = count == 3 ? open(arguments[1], O_RDONLY) : -1;

	if (file < 0 || requests < 1 || !blocks)
		err(1, "aio_addresses FILE COUNT");
	if (syscall(SYS_io_setup, BATCH, &context))
		err(1, "io_setup");
	for (long done = 0; done < requests;) {
		struct iocb *batch[BATCH];
		struct io_event events[BATCH];
		long size = requests - done < BATCH ? requests - done : BATCH;

		for (long i = 0; i < size; i++) {
			batch[i] = &blocks[done + i];
			*batch[i] = (struct iocb){
				.aio_lio_opcode = IOCB_CMD_PREAD,
				.aio_fildes = file,
				.aio_buf = (uintptr_t)page,
				.aio_nbytes = PAGE_BYTES,
			};
		}
		if (syscall(SYS_io_submit, context, size, batch) != size)
			err(1, "io_submit");
		if (syscall(SYS_io_getevents, context, size, size, events, NULL) != size)
			err(1, "io_getevents");
		done += size;
	}
	syscall(SYS_io_destroy, context);
	return 0;
}

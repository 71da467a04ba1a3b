// SPDX-License-Identifier: Apache-2.0
/*
 * Two threads are at the same event of a completion ring of io_submit: one looks at the ring by a call, the other has read the
 * event there, and submits the same struct iocb again. Which of the two is ahead, and by how much, differs from round to round.
 *
 *	aio_handed_on FILE
 *
 * Tells the thread that submits, and how many requests there were: all are syncs.
 */
#include <err.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "aio_ring.h"

enum {
	ROUNDS = 5003,
	LEADS = 61, /* by which one of the two may be ahead, in both directions */
	LEAD_TURNS = 16, /* the least lead, some 10 ns */
};

static aio_context_t context;
static atomic_int begun, looked; /* rounds */

static void let_pass(int leads)
{
	for (volatile int turn = 0; turn < leads * LEAD_TURNS; turn++)
		;
}

static void *look(void *unused)
{
	struct io_event event;
	for (int round = 1; round <= ROUNDS; round++) {
		while (atomic_load(&begun) < round)
			;
		let_pass(round % LEADS);
		if (syscall(SYS_io_getevents, context, 0, 0, &event, NULL))
			err(1, "io_getevents");
		atomic_store(&looked, round);
	}
	return unused;
}

static void submit(struct iocb *block)
{
	if (syscall(SYS_io_submit, context, 1, &block) != 1)
		err(1, "io_submit");
}

/* As libaio does it: without a call. */
static void take(struct aio_ring *ring)
{
	while (ring->head == ring->tail)
		sched_yield();
	ring->head = ring->tail;
}

int main(int count, char **arguments)
{
	pthread_t other;
	int file = count == 2 ? open(arguments[1], O_RDWR) : -1;
	struct iocb block = {.aio_lio_opcode = IOCB_CMD_FSYNC, .aio_fildes = file};
	if (file < 0)
		err(1, "aio_handed_on FILE");
	if (syscall(SYS_io_setup, 1, &context) || pthread_create(&other, NULL, look, NULL))
		err(1, "prepare");
	struct aio_ring *ring = (struct aio_ring *)context;
	submit(&block);
	for (int round = 1; round <= ROUNDS; round++) {
		take(ring);
		atomic_store(&begun, round);
		let_pass(LEADS / 2);
		submit(&block);
		while (atomic_load(&looked) < round)
			sched_yield();
	}
	take(ring);
	pthread_join(other, NULL);
	syscall(SYS_io_destroy, context);
	printf("%d %d\n", gettid(), 1 + ROUNDS);
	return 0;
}

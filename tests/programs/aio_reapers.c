// SPDX-License-Identifier: Apache-2.0
/*
 * Two threads look at the same completion ring of io_submit, one somewhat later than the other, and what the first one is
 * through with it submits again: the second one may then be on its way to the event that the same struct iocb had before.
 *
 *	aio_reapers FILE
 *
 * Tells how many requests there were: all are syncs, which the kernel does behind the back of who submits them.
 */
#include <err.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "aio_ring.h"

enum {
	REQUESTS = 4093, /* at once: to look at all of their events takes some ms */
	ROUNDS = 31,
	BEHIND_NS = 100000000, /* longer than that */
};

static aio_context_t context;
static sem_t begun, looked; /* rounds: the first thread looks; the second one has looked */
static int64_t late_ns; /* when the second one is to look */

static int64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ll + now.tv_nsec;
}

/* The recorder looks at the ring. */
static void ask_for_none(void)
{
	struct io_event event;
	if (syscall(SYS_io_getevents, context, 0, 0, &event, NULL))
		err(1, "io_getevents");
}

static void *look_late(void *unused)
{
	for (int round = 1; round <= ROUNDS; round++) {
		sem_wait(&begun);
		struct timespec late = {late_ns / 1000000000, late_ns % 1000000000};
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &late, NULL);
		ask_for_none();
		sem_post(&looked);
	}
	return unused;
}

/* The recorder can read only what the program has read before. */
static void read_all(const struct aio_ring *ring)
{
	for (unsigned int i = 0; i < ring->entries; i++)
		(void)*(const volatile __u64 *)&ring->events[i].obj;
}

static void submit(struct iocb **blocks, long count)
{
	if (syscall(SYS_io_submit, context, count, blocks) != count)
		err(1, "io_submit");
}

/* Until all have ended. Returns the one that was the last. */
static struct iocb *wait_for_all(const struct aio_ring *ring)
{
	while ((ring->tail + ring->entries - ring->head) % ring->entries < REQUESTS)
		usleep(100);
	return (struct iocb *)(uintptr_t)ring->events[(ring->tail + ring->entries - 1) % ring->entries].obj;
}

int main(int count, char **arguments)
{
	static struct iocb blocks[REQUESTS];
	static struct iocb *addresses[REQUESTS];
	static struct io_event events[REQUESTS + 1];
	int file = count == 2 ? open(arguments[1], O_RDWR) : -1;
	int64_t alone_ns = 0; /* how long the first thread looks that has the ring for itself */
	pthread_t second;

	if (file < 0)
		err(1, "aio_reapers FILE");
	/* Where that is allowed, so that both run when they are to. */
	sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){.sched_priority = 1});
	sem_init(&begun, 0, 0);
	sem_init(&looked, 0, 0);
	for (int i = 0; i < REQUESTS; i++) {
		blocks[i] = (struct iocb){.aio_lio_opcode = IOCB_CMD_FSYNC, .aio_fildes = file};
		addresses[i] = &blocks[i];
	}
	if (syscall(SYS_io_setup, REQUESTS + 1, &context) || pthread_create(&second, NULL, look_late, NULL))
		err(1, "prepare");
	read_all((const struct aio_ring *)context);
	for (int round = 1; round <= ROUNDS; round++) {
		submit(addresses, REQUESTS);
		struct iocb *last = wait_for_all((const struct aio_ring *)context);
		int64_t begun_ns = now_ns();
		/* The first round takes longer than those behind it. */
		late_ns = begun_ns + (round == 1 ? BEHIND_NS : alone_ns * (ROUNDS + 2 * round) / (4 * ROUNDS));
		sem_post(&begun);
		ask_for_none();
		if (round == 1)
			alone_ns = now_ns() - begun_ns;
		submit(&last, 1);
		sem_wait(&looked);
		if (syscall(SYS_io_getevents, context, REQUESTS + 1, REQUESTS + 1, events, NULL) != REQUESTS + 1)
			err(1, "io_getevents");
	}
	pthread_join(second, NULL);
	syscall(SYS_io_destroy, context);
	printf("%d\n", ROUNDS * (REQUESTS + 1));
	return 0;
}

// SPDX-License-Identifier: Apache-2.0
/*
 * A thread that makes no system call that is recorded: it only loads from a mapped file and stores to it. Prints its number.
 *
 *	silent_thread FILE
 */
#include <err.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
	PAGE_BYTES = 4096,
	PAGES = 13,
	STEP_PAGES = 41,
};

static volatile char *memory;
static pid_t thread_number;

static void *touch(void *argument)
{
	thread_number = gettid();
	for (int i = 0; i < PAGES; i++)
		memory[i * STEP_PAGES * PAGE_BYTES]++;
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t thread;
	if (argc != 2)
		errx(2, "usage: silent_thread FILE");
	int file = open(argv[1], O_RDWR);
	if (file < 0)
		err(1, "%s", argv[1]);
	memory = mmap(NULL, PAGES * STEP_PAGES * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (memory == MAP_FAILED)
		err(1, "mmap %s", argv[1]);
	if (pthread_create(&thread, NULL, touch, NULL) || pthread_join(thread, NULL))
		errx(1, "cannot run a thread");
	printf("%d\n", thread_number);
	return 0;
}

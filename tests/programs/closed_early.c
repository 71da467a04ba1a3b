// SPDX-License-Identifier: Apache-2.0
/*
 * Opens a file again and again, while another thread reads from the descriptor, in two ways, and closes it as soon as there
 * is one, be the call that made it through or not.
 *
 *	closed_early FILE
 *
 * Tells how often it was opened and how often it was read.
 */
#include <err.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/sendfile.h>
#include <unistd.h>

enum { OPENS = 10007 };

static int nowhere;
static int descriptor; /* that the next open gets */
static int reads; /* that have found it */
static atomic_bool through;

static void *close_early(void *unused)
{
	char byte;
	while (!atomic_load(&through)) {
		reads += pread(descriptor, &byte, sizeof(byte), 0) >= 0;
		reads += sendfile(nowhere, descriptor, NULL, sizeof(byte)) >= 0;
		close(descriptor);
	}
	return unused;
}

int main(int count, char **arguments)
{
	pthread_t other;
	nowhere = open("/dev/null", O_WRONLY);
	descriptor = count == 2 ? open(arguments[1], O_RDONLY) : -1;
	if (descriptor < 0 || pthread_create(&other, NULL, close_early, NULL))
		err(1, "closed_early FILE");
	for (int i = 1; i < OPENS; i++) {
		/* Not before the one before is closed. */
		while (fcntl(descriptor, F_GETFD) >= 0)
			;
		if (open(arguments[1], O_RDONLY) != descriptor)
			err(1, "open");
	}
	atomic_store(&through, true);
	pthread_join(other, NULL);
	printf("%d %d\n", OPENS, reads);
	return 0;
}

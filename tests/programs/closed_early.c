// SPDX-License-Identifier: Apache-2.0
/*
 * Opens a file again and again, while another thread closes the descriptor as soon as there is one, be the call that made it
 * through or not.
 *
 *	closed_early FILE
 *
 * Tells how often it was opened.
 */
#include <err.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

enum { OPENS = 10007 };

static int descriptor; /* that the next open gets */
static atomic_bool through;

static void *close_early(void *unused)
{
	while (!atomic_load(&through))
		close(descriptor);
	return unused;
}

int main(int count, char **arguments)
{
	pthread_t other;
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
	printf("%d\n", OPENS);
	return 0;
}

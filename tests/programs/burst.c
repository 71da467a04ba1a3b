// SPDX-License-Identifier: Apache-2.0
/*
 * As many operations as fast as possible, of known numbers and sizes, and nothing else: linked statically, so that not even
 * libraries are opened. Every thread opens its file once, and syncs and closes it at the end. Says "KIND N BYTES" of each.
 *
 *	burst DIRECTORY
 */
#include "told.h"

enum {
	THREADS = 3,
	WRITES = 50021, /* of each thread */
	WRITE_BYTES = 7,
	READS = 30011, /* of each thread */
	READ_BYTES = 11,
	SYNCS = 5,
	FAILED_READS = 1009,
};

static void *run(void *argument)
{
	char path[PATH_ROOM], buffer[READ_BYTES] = {0};
	int descriptor;

	snprintf(path, sizeof(path), "%s/%d", told_directory, (int)(intptr_t)argument);
	descriptor = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
	for (int i = 0; i < WRITES; i++)
		if (write(descriptor, buffer, WRITE_BYTES) != WRITE_BYTES)
			err(1, "write");
	for (int i = 0; i < READS; i++)
		if (pread(descriptor, buffer, READ_BYTES, i) != READ_BYTES)
			err(1, "pread");
	for (int i = 0; i < FAILED_READS; i++)
		if (pread(descriptor, buffer, READ_BYTES, WRITES * WRITE_BYTES))
			err(1, "pread at the end");
	for (int i = 0; i < SYNCS; i++)
		if (fdatasync(descriptor))
			err(1, "fdatasync");
	close(descriptor);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS];
	if (argc != 2)
		errx(2, "usage: burst DIRECTORY");
	told_directory = argv[1];
	for (intptr_t i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, run, (void *)i);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	printf("write %d %d\n", THREADS * WRITES, THREADS * WRITES * WRITE_BYTES);
	printf("read %d %d\n", THREADS * READS, THREADS * READS * READ_BYTES);
	printf("failed %d 0\n", THREADS * FAILED_READS);
	printf("fileop %d 0\n", THREADS * (2 + SYNCS));
	return 0;
}

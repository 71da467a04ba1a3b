// SPDX-License-Identifier: Apache-2.0
/*
 * Makes many equal system calls and tells how long one takes: the median over chunks, so that what interrupts a chunk
 * (another process, another virtual machine) does not count.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { CHUNKS = 101, CALLS = 100 * 1000 };

static int compare(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;
	return (left > right) - (left < right);
}

static int64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

int main(int argc, char **argv)
{
	double call_ns[CHUNKS];
	char byte;

	if (argc != 2 || (strcmp(argv[1], "getppid") && strcmp(argv[1], "pread"))) {
		fprintf(stderr, "usage: system_calls getppid|pread\n");
		return 2;
	}
	int descriptor = open(argv[0], O_RDONLY | O_CLOEXEC);
	if (descriptor < 0) {
		fprintf(stderr, "system_calls: cannot open %s: %m\n", argv[0]);
		return 1;
	}
	for (int chunk = 0; chunk < CHUNKS; chunk++) {
		int64_t start_ns = now_ns();
		if (argv[1][0] == 'g')
			for (int call = 0; call < CALLS; call++)
				syscall(SYS_getppid);
		else
			for (int call = 0; call < CALLS; call++)
				if (pread(descriptor, &byte, 1, 0) != 1)
					return 1;
		call_ns[chunk] = (double)(now_ns() - start_ns) / CALLS;
	}
	close(descriptor);
	qsort(call_ns, CHUNKS, sizeof(*call_ns), compare);
	printf("%.2f\n", call_ns[CHUNKS / 2]);
	return 0;
}

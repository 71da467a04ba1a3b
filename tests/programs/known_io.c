// SPDX-License-Identifier: Apache-2.0
/*
 * Does a known number of operations of every kind that the recorder knows, and writes what it did to its standard output
 * as lines "KIND name thread offset asked result" for the test to compare with the trace (thread 0: one of several).
 * All counts and sizes are primes.
 *
 * The threads that share a file position read numbered blocks, so that each knows the true offset of each of its reads;
 * those that share it for writing write blocks with their own number, which are looked up at the end.
 */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	THREADS = 3,
	SHARED_READS = 503, /* of each thread */
	SHARED_BLOCK_BYTES = 127,
	SHARED_WRITES = 251, /* of each thread */
	APPENDS = 101, /* of each thread and each process */
	APPEND_BYTES = 53,
	PLAIN_OPERATIONS = 31,
	PLAIN_BYTES = 1009,
};

static const char *directory;
static pthread_mutex_t output = PTHREAD_MUTEX_INITIALIZER;

static void did_by(int thread, const char *kind, const char *name, int64_t offset, int64_t asked, int64_t result)
{
	pthread_mutex_lock(&output);
	printf("%s %s %d %lld %lld %lld\n", kind, name, thread, (long long)offset, (long long)asked, (long long)result);
	pthread_mutex_unlock(&output);
}

static void did(const char *kind, const char *name, int64_t offset, int64_t asked, int64_t result)
{
	did_by(gettid(), kind, name, offset, asked, result);
}

static int open_file(const char *name, int flags)
{
	char path[4096];
	snprintf(path, sizeof(path), "%s/%s", directory, name);
	int descriptor = open(path, flags, 0600);
	if (descriptor < 0)
		err(1, "open %s", path);
	did("open", name, 0, 0, 0);
	return descriptor;
}

static void close_file(const char *name, int descriptor)
{
	if (close(descriptor))
		err(1, "close %s", name);
	did("close", name, 0, 0, 0);
}

/* The plain calls, one after the other on one file. */
static void do_plain(void)
{
	char buffer[4 * PLAIN_BYTES];
	struct iovec vectors[3] = {{buffer, 7}, {buffer + 7, 11}, {buffer + 18, 13}};
	int descriptor = open_file("plain", O_RDWR | O_CREAT | O_EXCL);
	memset(buffer, 'x', sizeof(buffer));

	for (int64_t i = 0; i < PLAIN_OPERATIONS; i++)
		did("write", "plain", i * PLAIN_BYTES, PLAIN_BYTES, write(descriptor, buffer, PLAIN_BYTES));
	for (int64_t i = 0; i < PLAIN_OPERATIONS; i++)
		did("write", "plain", i * 17, 19, pwrite(descriptor, buffer, 19, i * 17));
	for (int64_t i = 0; i < PLAIN_OPERATIONS; i++)
		did("read", "plain", i * 23, 29, pread(descriptor, buffer, 29, i * 23));
	int64_t end = PLAIN_OPERATIONS * PLAIN_BYTES;
	did("read", "plain", end, 37, read(descriptor, buffer, 37)); /* at the end: 0 bytes */
	if (lseek(descriptor, 41, SEEK_SET) != 41)
		err(1, "lseek");
	did("read", "plain", 41, PLAIN_BYTES, read(descriptor, buffer, PLAIN_BYTES));
	did("write", "plain", 41 + PLAIN_BYTES, 31, writev(descriptor, vectors, 3));
	did("read", "plain", 72 + PLAIN_BYTES, 31, readv(descriptor, vectors, 3));
	did("write", "plain", 43, 31, pwritev(descriptor, vectors, 3, 43));
	did("read", "plain", 47, 18, preadv(descriptor, vectors, 2, 47));
	did("write", "plain", 53, 18, pwritev2(descriptor, vectors, 2, 53, RWF_DSYNC));
	did("read", "plain", 59, 31, preadv2(descriptor, vectors, 3, 59, 0));
	/* Offset -1: the file position, which the calls above have left behind the readv. */
	did("read", "plain", 103 + PLAIN_BYTES, 7, preadv2(descriptor, vectors, 1, -1, 0));
	did("write", "plain", 110 + PLAIN_BYTES, 7, pwritev2(descriptor, vectors, 1, -1, 0));
	did("write", "plain", end, 7, pwritev2(descriptor, vectors, 1, 0, RWF_APPEND));
	did("read", "plain", end - 5, 61, pread(descriptor, buffer, 61, end - 5)); /* short: 12 bytes are there */
	char *volatile nowhere = (char *)8;
	did("read", "plain", 0, 67, pread(descriptor, nowhere, 67, 0) < 0 ? -errno : 0); /* EFAULT */
	did("fsync", "plain", 0, 0, fsync(descriptor));
	did("fdatasync", "plain", 0, 0, fdatasync(descriptor));
	did("truncate", "plain", 71, 0, ftruncate(descriptor, 71));
	close_file("plain", descriptor);

	descriptor = open_file("created", O_WRONLY | O_CREAT | O_TRUNC);
	did("write", "created", 0, 73, write(descriptor, buffer, 73));
	close_file("created", descriptor);
}

/* Renames and unlinks, by absolute path, relative to the working directory and relative to a descriptor. */
static void do_names(void)
{
	char from[4096], to[4096];
	if (chdir(directory))
		err(1, "chdir");
	close_file("first", open_file("first", O_WRONLY | O_CREAT));
	close_file("second", open_file("second", O_WRONLY | O_CREAT));
	snprintf(from, sizeof(from), "%s/first", directory);
	snprintf(to, sizeof(to), "%s/renamed", directory);
	did("rename", "first", 0, 0, rename(from, to));
	did("unlink", "first", 0, 0, unlink("./renamed"));
	int parent = open(directory, O_RDONLY | O_DIRECTORY);
	did("unlink", "second", 0, 0, unlinkat(parent, "second", 0));
	did("fsync", ".", 0, 0, fsync(parent));
	close(parent);
	did("unlink", "?", 0, 0, unlink("never-there") < 0 ? -errno : 0);
}

static int shared_descriptor, written_descriptor, appended_descriptor;
static int writers[THREADS]; /* thread ids */

static void *share_position(void *argument)
{
	char block[SHARED_BLOCK_BYTES + 1] = {0};
	intptr_t thread = (intptr_t)argument;

	writers[thread] = gettid();
	for (int i = 0; i < SHARED_READS; i++) {
		ssize_t done = read(shared_descriptor, block, SHARED_BLOCK_BYTES);
		did("read", "shared", strtoll(block, NULL, 10) * SHARED_BLOCK_BYTES, SHARED_BLOCK_BYTES, done);
	}
	for (int i = 0; i < SHARED_WRITES; i++) {
		snprintf(block, sizeof(block), "%*d", SHARED_BLOCK_BYTES - 1, (int)thread * SHARED_WRITES + i);
		if (write(written_descriptor, block, SHARED_BLOCK_BYTES) != SHARED_BLOCK_BYTES)
			err(1, "shared write");
	}
	for (int i = 0; i < APPENDS; i++)
		if (write(appended_descriptor, block, APPEND_BYTES) != APPEND_BYTES)
			err(1, "append");
	return NULL;
}

static void do_shared(void)
{
	char block[SHARED_BLOCK_BYTES + 1];
	pthread_t threads[THREADS];
	int made = open_file("shared", O_WRONLY | O_CREAT);
	for (int64_t i = 0; i < THREADS * SHARED_READS; i++) {
		snprintf(block, sizeof(block), "%*lld", SHARED_BLOCK_BYTES - 1, (long long)i);
		did("write", "shared", i * SHARED_BLOCK_BYTES, SHARED_BLOCK_BYTES,
		    write(made, block, SHARED_BLOCK_BYTES));
	}
	close_file("shared", made);

	shared_descriptor = open_file("shared", O_RDONLY);
	written_descriptor = open_file("written", O_RDWR | O_CREAT);
	appended_descriptor = open_file("appended", O_WRONLY | O_CREAT | O_APPEND);
	fflush(stdout);
	for (intptr_t i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, share_position, (void *)i);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	close_file("shared", shared_descriptor);
	close_file("appended", appended_descriptor);

	/* Where each number was written is where its write went. */
	int64_t blocks = THREADS * SHARED_WRITES;
	for (int64_t i = 0; i < blocks; i++) {
		int64_t offset = i * SHARED_BLOCK_BYTES;
		did("read", "written", offset, SHARED_BLOCK_BYTES,
		    pread(written_descriptor, block, SHARED_BLOCK_BYTES, offset));
		block[SHARED_BLOCK_BYTES] = '\0';
		did_by(writers[strtoll(block, NULL, 10) / SHARED_WRITES], "write", "written", offset,
		       SHARED_BLOCK_BYTES, SHARED_BLOCK_BYTES);
	}
	close_file("written", written_descriptor);
	for (int64_t i = 0; i < THREADS * APPENDS; i++)
		did_by(0, "write", "appended", i * APPEND_BYTES, APPEND_BYTES, APPEND_BYTES);
}

/* Two processes append to one file, each through its own open. */
static void do_appending_processes(void)
{
	char block[APPEND_BYTES] = {0};
	close_file("log", open_file("log", O_WRONLY | O_CREAT));
	fflush(stdout);
	for (int process = 0; process < 2; process++) {
		if (fork() == 0) {
			int descriptor = open_file("log", O_WRONLY | O_APPEND);
			for (int i = 0; i < APPENDS; i++)
				if (write(descriptor, block, APPEND_BYTES) != APPEND_BYTES)
					err(1, "log");
			close_file("log", descriptor);
			exit(0); /* flushes its lines */
		}
	}
	for (int status; wait(&status) > 0;)
		if (status)
			errx(1, "an appending process failed");
	for (int64_t i = 0; i < 2 * APPENDS; i++)
		did_by(0, "write", "log", i * APPEND_BYTES, APPEND_BYTES, APPEND_BYTES);
}

int main(int argc, char **argv)
{
	if (argc != 2)
		errx(2, "usage: known_io DIRECTORY");
	directory = argv[1];
	setvbuf(stdout, NULL, _IOFBF, 1 << 20);
	do_plain();
	do_names();
	do_shared();
	do_appending_processes();
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a test program did -> lines on its standard output, for the test to compare with the trace:
 *
 *	KIND NAME thread offset asked result source flags missed
 *
 * KIND is read, write or a file operation; offset and asked are argument and length of a file operation. NAME is relative
 * to the directory of the test, or absolute; OLD>NEW where two are named; ? where the recorder cannot know one. flags are
 * those of bpf/trace_format.h. missed is what a read took from the device, - where the program cannot know it.
 */
#ifndef FLEXTRACE_TOLD_H
#define FLEXTRACE_TOLD_H

#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bpf/trace_format.h"

enum { PATH_ROOM = 4096, MISSED_UNKNOWN = -1 };

static const char *told_directory;
static pthread_mutex_t told_lock = PTHREAD_MUTEX_INITIALIZER;

static inline void tell(int thread, const char *kind, const char *name, int64_t offset, int64_t asked, int64_t result,
			int source, unsigned int flags, int64_t missed)
{
	char text[32] = "-";
	if (missed != MISSED_UNKNOWN)
		snprintf(text, sizeof(text), "%lld", (long long)missed);
	pthread_mutex_lock(&told_lock);
	printf("%s %s %d %lld %lld %lld %d %u %s\n", kind, name, thread, (long long)offset, (long long)asked,
	       (long long)result, source, flags, text);
	pthread_mutex_unlock(&told_lock);
}

/* A data operation of this thread on a file that is in the page cache, unless it is direct. */
static inline void did(const char *kind, const char *name, int64_t offset, int64_t asked, int64_t result, int source,
		       unsigned int flags)
{
	bool is_read = !strcmp(kind, "read");
	int64_t missed = !is_read || result <= 0 ? MISSED_UNKNOWN : flags & IO_DIRECT ? result : 0;
	tell(gettid(), kind, name, offset, asked, result, source, flags, missed);
}

static inline void did_file(const char *kind, const char *name, int64_t argument, int64_t length, int64_t result,
			    unsigned int flags)
{
	tell(gettid(), kind, name, argument, length, result, SOURCE_SYSCALL, flags, MISSED_UNKNOWN);
}

/* Of a system call's answer: the result as the kernel gave it. */
static inline int64_t answer(int64_t returned)
{
	return returned < 0 ? -errno : returned;
}

static inline void told_init(const char *directory)
{
	told_directory = directory;
	setvbuf(stdout, NULL, _IOFBF, 1 << 20);
}

/*
 * Whether stat makes the next change of a file have a time of its own: then many changes within one tick of the clock all
 * differ. Tried on the directory of the test, by calls that are no operations of a trace.
 */
static inline bool stat_marks_times(void)
{
	enum { CHANGES = 100 };
	struct stat before, after;
	int different = 0;
	if (stat(told_directory, &before))
		err(1, "stat %s", told_directory);
	for (int i = 0; i < CHANGES; i++, before = after) {
		if (chmod(told_directory, before.st_mode & 07777) || stat(told_directory, &after))
			err(1, "chmod %s", told_directory);
		different += before.st_ctim.tv_nsec != after.st_ctim.tv_nsec;
	}
	return different == CHANGES;
}

/* Asks for the times of a file; what the next write of it has among its flags. */
static inline unsigned int ask_times(int descriptor)
{
	static int marks = -1;
	if (marks < 0)
		marks = stat_marks_times();
	struct stat status;
	if (fstat(descriptor, &status))
		err(1, "fstat");
	return marks ? IO_CTIME_QUERIED : 0;
}

static inline const char *path_of(const char *name, char path[PATH_ROOM])
{
	if (name[0] == '/')
		return name;
	snprintf(path, PATH_ROOM, "%s/%s", told_directory, name);
	return path;
}

static inline unsigned int descriptor_flags(int open_flags)
{
	unsigned int flags = 0;
	if (open_flags & O_DIRECT)
		flags |= IO_DIRECT;
	if (open_flags & O_DIRECTORY && (open_flags & O_TMPFILE) != O_TMPFILE)
		flags |= IO_DIRECTORY;
	if (open_flags & O_APPEND)
		flags |= IO_APPEND;
	if ((open_flags & O_SYNC) == O_SYNC)
		flags |= IO_SYNC;
	else if (open_flags & O_DSYNC)
		flags |= IO_DSYNC;
	return flags;
}

/* The file is created if O_EXCL says so. */
static inline int open_file(const char *name, int open_flags)
{
	char room[PATH_ROOM];
	const char *path = path_of(name, room);
	int descriptor = open(path, open_flags, 0600);
	if (descriptor < 0)
		err(1, "open %s", path);
	unsigned int flags = descriptor_flags(open_flags) | (open_flags & O_EXCL ? IO_CREATED : 0) |
			     (open_flags & O_TRUNC ? IO_TRUNCATED : 0);
	did_file("open", name, descriptor, open_flags & O_CREAT ? 0600 : 0, 0, flags);
	return descriptor;
}

static inline void close_file(const char *name, int descriptor)
{
	int open_flags = fcntl(descriptor, F_GETFL);
	if (close(descriptor))
		err(1, "close %s", name);
	did_file("close", name, descriptor, 0, 0, descriptor_flags(open_flags));
}

/* A file of that size that is in the page cache and on the device; written by one call. */
static inline void make_file(const char *name, size_t bytes)
{
	char *content = malloc(bytes);
	if (!content)
		err(1, "%zu bytes", bytes);
	for (size_t i = 0; i < bytes; i++)
		content[i] = 'a' + i % 23;
	int descriptor = open_file(name, O_WRONLY | O_CREAT | O_EXCL);
	did("write", name, 0, bytes, write(descriptor, content, bytes), SOURCE_SYSCALL, 0);
	did_file("fsync", name, 0, 0, fsync(descriptor), 0);
	close_file(name, descriptor);
	free(content);
}

/* Stops a program whose step did not do what the test is about. */
static inline void expect(const char *what, int64_t got, int64_t wanted)
{
	if (got != wanted)
		errx(1, "%s: %lld instead of %lld (%s)", what, (long long)got, (long long)wanted, strerror(errno));
}

#endif /* FLEXTRACE_TOLD_H */

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FLEXTRACE_SEEN_FILE_H
#define FLEXTRACE_SEEN_FILE_H

#include <stdbool.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "trace_format.h"

/* A file as it was when it was first seen, and how it is found. */
struct seen_file {
	struct file_record record;
	char *path; /* freed by its owner */
	pid_t viewer; /* process whose view the path is */
};

/* Whether it is a regular file that can be looked at without asking a server. */
bool seen_file_can_be_asked(const struct file_record *record);
/* Its size and blocks, if it is still there under its path. 0 or -ENOENT. */
int seen_file_ask(const struct seen_file *file, struct statx *status);
/* Of its descriptor. 0 or a negative errno. */
int seen_file_ask_open(int descriptor, struct statx *status);
/* A descriptor for reading, with O_NOATIME where that is allowed; -1 = it is not there any more, or may not be read. */
int seen_file_open(const struct seen_file *file);

#endif /* FLEXTRACE_SEEN_FILE_H */

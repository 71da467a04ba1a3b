/* SPDX-License-Identifier: Apache-2.0 */
/* Turns the paths of files, kept as hashes, into who has the same one and who lies in which directory. */
#ifndef FLEXTRACE_FILE_PATHS_H
#define FLEXTRACE_FILE_PATHS_H

#include "replayer/engine/files.h"

struct path_hash {
	uint64_t path; /* 0 = none */
	uint64_t directory; /* of what stands before its last slash */
	uint64_t inode;
};

/* A path comes in pieces, after the record of its file. */
void path_begin(struct path_hash *hash, const struct file_record *record);
void path_append(struct path_hash *hash, const struct text_record *text);

/* Whether it is what the kernel gives a file that has no name: "#", and the number of its inode. */
bool path_is_nameless(const struct path_hash *hash);

/* Fills path and parent of all files, and marks those that renames may replace. 0 or -ENOMEM. */
int file_paths_resolve(struct file_table *table, const struct path_hash *hashes);

#endif

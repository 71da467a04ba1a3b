/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FLEXTRACE_NAMES_H
#define FLEXTRACE_NAMES_H

#include <stdint.h>

/* Which file id has which path now: filled by FILE records, moved by rename, emptied by unlink. */
struct names {
	void *tree; /* of struct name, by tsearch(3) */
	void *directories; /* of struct name: every directory that a path of the tree goes through, or did before */
};

void names_init(struct names *names);
void names_deinit(struct names *names);
/* 0 or -ENOMEM. An older file of the same path is forgotten. */
int names_put(struct names *names, const char *path, uint32_t file);
/* File id, or 0 if the path was never seen. */
uint32_t names_find(const struct names *names, const char *path);
/* A directory is renamed: what lies below it has other paths from now on. 0 or -ENOMEM. */
int names_move_directory(struct names *names, const char *from, const char *to);
/* Of a file, or of a directory that is empty. */
void names_remove(struct names *names, const char *path);
/* Absolute path without empty, "." and ".." components (not through symbolic links); to be freed. NULL = no memory. */
char *names_join(const char *directory, const char *path);
/* The same through the symbolic links of all but the last component, if they can be looked up. */
char *names_join_resolved(const char *directory, const char *path);
/*
 * A descriptor (O_PATH) of a directory, by what the kernel has at hand, so that no server is waited for, and not through
 * the links of /proc to what a process has open; -1 = none.
 */
int names_open_directory(const char *path);

#endif /* FLEXTRACE_NAMES_H */

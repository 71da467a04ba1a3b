/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FLEXTRACE_NAMES_H
#define FLEXTRACE_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Which file has which path now: filled by FILE records, moved by rename, emptied by unlink. Paths are absolute. */
struct names {
	struct name **slots; /* of entries of directories, by their hash */
	size_t slot_count, count; /* no more entries than slots */
	uint32_t directories; /* that were numbered */
};

/* What a path means. */
struct named {
	uint32_t file; /* 0 = nothing that was seen */
	uint32_t carrier; /* whose FILE record has the path, or had it before a directory on the way was renamed */
};

void names_init(struct names *names);
void names_deinit(struct names *names);
/* 0 or -ENOMEM. What had the path is forgotten. */
int names_put(struct names *names, const char *path, struct named named);
struct named names_find(struct names *names, const char *path);
/*
 * Of a file or directory that is known, with all that is below; carrier: of the new path. What was there is forgotten, or
 * (exchange) has the old path from now on. 0 or -ENOMEM.
 */
int names_rename(struct names *names, const char *from, const char *to, uint32_t carrier, bool exchange);
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

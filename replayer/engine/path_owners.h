/* SPDX-License-Identifier: Apache-2.0 */
/* Turns the path of a file, kept as a hash, into the file that came there last while a trace is gone through. */
#ifndef FLEXTRACE_PATH_OWNERS_H
#define FLEXTRACE_PATH_OWNERS_H

#include <stdint.h>

struct path_owner {
	uint64_t path; /* 0 = free */
	uint32_t file;
};

/* Open addressing, at most half full. */
struct path_owners {
	struct path_owner *slots;
	uint64_t count, room;
};

/* 0 where none is known. */
uint32_t path_owner(const struct path_owners *owners, uint64_t path);

/* 0 or -ENOMEM. Path 0 is none. */
int path_owner_set(struct path_owners *owners, uint64_t path, uint32_t file);
void path_owners_free(struct path_owners *owners);

#endif

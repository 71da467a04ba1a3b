/* SPDX-License-Identifier: Apache-2.0 */
/* Turns a part of a file into the places on its device where the file system has put it. */
#ifndef FLEXTRACE_EXTENTS_H
#define FLEXTRACE_EXTENTS_H

#include <stddef.h>
#include <stdint.h>

/* Side by side in the file and on the device; all in bytes. */
struct extent {
	uint64_t offset;
	uint64_t place;
	uint64_t bytes;
};

struct extents {
	struct extent *list;
	size_t count, capacity;
};

/*
 * In the order of the file. -ENODATA when a part of it has no place (a hole, or data that is kept elsewhere), -ENOMEM,
 * -EOPNOTSUPP or -ENOTTY where the file system does not tell.
 */
int extents_read(struct extents *extents, int descriptor, uint64_t offset, uint64_t bytes);
void extents_free(struct extents *extents);

#endif

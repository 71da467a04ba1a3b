/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns what an image was made for into the name of an empty file in it, and back: `.flextrace-image.DATA.HASH`, where
 * DATA is the kind of its data and HASH that of the trace's files, or `unfinished` while it is laid out. In a name
 * because looking a name up is no data operation: a recording of a replay has to equal the original.
 */
#ifndef FLEXTRACE_IMAGE_SEAL_H
#define FLEXTRACE_IMAGE_SEAL_H

#include <stdbool.h>
#include <stdint.h>

#define IMAGE_MARKER ".flextrace-image"

struct seal {
	bool found;
	bool finished;
	unsigned int data_percent; /* data_fill.h */
	uint64_t files_hash;
};

/* Whether a name is the marker's or a seal's. */
bool seal_is_name(const char *name);

/* The seal of an image; one that is not understood counts as none. -errno when the directory cannot be listed. */
int seal_read(int directory, struct seal *seal);

/* Replaces whatever seals there are. */
int seal_write(int directory, const struct seal *seal);

#endif

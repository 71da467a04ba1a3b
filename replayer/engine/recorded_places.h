/* SPDX-License-Identifier: Apache-2.0 */
/* Turns the BLOCK_DATA records of a trace into pieces of files in the order of their places on the recorded devices. */
#ifndef FLEXTRACE_RECORDED_PLACES_H
#define FLEXTRACE_RECORDED_PLACES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "replayer/engine/files.h"

enum { PIECE_GRAIN_BYTES = 4096 }; /* pieces begin and end at multiples: the block of nearly every file system */

/* A part of a file that was contiguous on its device. */
struct piece {
	uint64_t sector;
	uint64_t offset;
	uint64_t bytes;
	uint32_t device;
	uint32_t file; /* index in the table of files */
};

struct recorded_places {
	struct piece *pieces;
	size_t count, capacity;
	uint64_t bytes;
	bool too_many; /* more were recorded than can be kept: the rest is left out */
};

/*
 * Of files that are laid out, where what they held at the start was first seen. What never moved between a device and
 * memory has no piece; of several places of the same data the earliest counts. -ENOMEM; -EINTR after
 * a stop.
 */
int recorded_places_read(struct recorded_places *places, const struct trace *trace, const struct file_table *table);
void recorded_places_free(struct recorded_places *places);

#endif

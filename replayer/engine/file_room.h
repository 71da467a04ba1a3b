/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns what a trace does to a file into the room that its data takes at most: where its holes are is not kept here,
 * so that whatever is written to it may fill them.
 */
#ifndef FLEXTRACE_FILE_ROOM_H
#define FLEXTRACE_FILE_ROOM_H

#include <linux/falloc.h>

#include "replayer/engine/trace_reader.h"

struct room {
	uint64_t bytes; /* taken, at most; never more than reach_bytes */
	uint64_t reach_bytes; /* behind this nothing is taken */
};

/* The image has data up to `end`, where before it had some up to `from`. */
static inline void room_lay_out(struct room *room, uint64_t from, uint64_t end)
{
	uint64_t bytes = add_saturating(room->bytes, end - from);

	if (end > room->reach_bytes)
		room->reach_bytes = end;
	room->bytes = bytes < room->reach_bytes ? bytes : room->reach_bytes;
}

/* [offset, end) is written or allocated. */
static inline void room_fill(struct room *room, uint64_t offset, uint64_t end)
{
	uint64_t reach = room->reach_bytes, holes = reach - room->bytes;

	if (end > reach) {
		room->bytes += end - (offset > reach ? offset : reach);
		room->reach_bytes = end;
		end = reach;
	}
	if (end > offset)
		room->bytes += end - offset < holes ? end - offset : holes;
}

/* All behind size_bytes is given back. */
static inline void room_cut(struct room *room, uint64_t size_bytes)
{
	if (room->reach_bytes > size_bytes)
		room->reach_bytes = size_bytes;
	if (room->bytes > size_bytes)
		room->bytes = size_bytes;
}

/* Punching a hole and cutting a piece out give back at most what they name: that is not counted on. */
static inline void room_allocate(struct room *room, uint32_t mode, uint64_t offset, uint64_t bytes)
{
	if (mode & FALLOC_FL_INSERT_RANGE)
		room->reach_bytes = add_saturating(room->reach_bytes, bytes);
	else if (!(mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_COLLAPSE_RANGE)))
		room_fill(room, offset, add_saturating(offset, bytes));
}

#endif

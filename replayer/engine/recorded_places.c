// SPDX-License-Identifier: Apache-2.0
// Turns the BLOCK_DATA records of a trace into pieces of files in the order of their places on the recorded devices.
#include <errno.h>
#include <stdlib.h>

#include "replayer/engine/message.h"
#include "replayer/engine/recorded_places.h"

/* Tests have fewer. */
#ifndef PIECES_MAX
#define PIECES_MAX (2u << 20) /* 64 MiB */
#endif

enum { PIECES_MIN = 1024, SECTOR_BYTES = 512 };

_Static_assert(sizeof(struct piece) == 32, "piece size");
_Static_assert(PIECES_MAX >= PIECES_MIN, "pieces are made in steps from PIECES_MIN on");

static int compare(uint64_t a, uint64_t b)
{
	return a < b ? -1 : a > b;
}

static int compare_in_file(const void *left, const void *right)
{
	const struct piece *a = left, *b = right;
	int difference = compare(a->file, b->file);

	return difference ? difference : compare(a->offset, b->offset);
}

static int compare_on_device(const void *left, const void *right)
{
	const struct piece *a = left, *b = right;
	int difference = compare(a->device, b->device);

	if (!difference)
		difference = compare(a->sector, b->sector);
	/* Two may have been at the same place one after the other. */
	return difference ? difference : compare_in_file(left, right);
}

/* Makes one piece of neighbours. No two have the same byte of a file. */
static void join(struct recorded_places *places)
{
	size_t kept = 0;

	if (places->count)
		qsort(places->pieces, places->count, sizeof(*places->pieces), compare_in_file);
	for (size_t i = 0; i < places->count; i++) {
		struct piece next = places->pieces[i];
		struct piece *last = kept ? &places->pieces[kept - 1] : NULL;

		if (last && last->file == next.file && last->device == next.device &&
		    last->offset + last->bytes == next.offset &&
		    last->sector + last->bytes / SECTOR_BYTES == next.sector)
			last->bytes += next.bytes;
		else
			places->pieces[kept++] = next;
	}
	places->count = kept;
}

/* -ENOSPC when there are too many that are not neighbours. */
static int make_room(struct recorded_places *places)
{
	if (places->count < places->capacity)
		return 0;
	if (places->capacity < PIECES_MAX) {
		size_t capacity = places->capacity ? 2 * places->capacity : PIECES_MIN;
		struct piece *larger = realloc(places->pieces, capacity * sizeof(*larger));

		if (!larger)
			return -ENOMEM;
		places->pieces = larger;
		places->capacity = capacity;
		return 0;
	}
	join(places);
	return places->count < PIECES_MAX / 2 ? 0 : -ENOSPC;
}

static bool is_place(const struct block_data_record *record)
{
	return record->kind == RECORD_BLOCK_DATA &&
	       (record->class == DATA_DIRECT || record->class == DATA_FILL || record->class == DATA_WRITEBACK);
}

/* Which blocks of which files have a place by now: 32 MiB for each TiB of files. */
struct known {
	uint64_t **blocks; /* by file, NULL until its first; one bit for each block */
	uint32_t files;
};

static void known_free(struct known *known)
{
	for (uint32_t file = 0; known->blocks && file < known->files; file++)
		free(known->blocks[file]);
	free(known->blocks);
}

/* Returns whether a block was not known before. */
static bool know(uint64_t *blocks, uint64_t block)
{
	uint64_t bit = 1ull << (block % 64);
	bool new = !(blocks[block / 64] & bit);

	blocks[block / 64] |= bit;
	return new;
}

static int add(struct recorded_places *places, struct known *known, const struct block_data_record *record,
	       const struct file_table *table)
{
	uint32_t index = files_index(table, record->file);
	const struct file *file = &table->files[index];
	uint64_t blocks = file->layout_bytes / PIECE_GRAIN_BYTES;

	if (!index || !file->laid_out || file->directory || !blocks)
		return 0;
	if (!known->blocks[index])
		known->blocks[index] = calloc((blocks + 63) / 64, sizeof(uint64_t));
	if (!known->blocks[index])
		return -ENOMEM;
	uint64_t first = record->offset / PIECE_GRAIN_BYTES + (record->offset % PIECE_GRAIN_BYTES > 0);
	uint64_t end = add_saturating(record->offset, record->bytes) / PIECE_GRAIN_BYTES;
	struct piece *last = NULL;
	for (uint64_t block = first; block < end && block < blocks; block++) {
		uint64_t offset = block * PIECE_GRAIN_BYTES;
		bool hole =
			file->hole_bytes && file_ranges_meet(table->holes, index, offset, offset + PIECE_GRAIN_BYTES);

		/* What was a hole at the start got its place by a write of the trace. */
		if (hole || !know(known->blocks[index], block)) {
			last = NULL;
			continue;
		}
		if (last) {
			last->bytes += PIECE_GRAIN_BYTES;
			continue;
		}
		int error = make_room(places);
		if (error)
			return error;
		last = &places->pieces[places->count++];
		*last = (struct piece){
			.sector = record->sector + (offset - record->offset) / SECTOR_BYTES,
			.offset = offset,
			.bytes = PIECE_GRAIN_BYTES,
			.device = record->device,
			.file = index,
		};
	}
	return 0;
}

int recorded_places_read(struct recorded_places *places, const struct trace *trace, const struct file_table *table)
{
	__attribute__((cleanup(known_free))) struct known known = {
		.blocks = calloc(table->count, sizeof(*known.blocks)),
		.files = table->count,
	};

	*places = (struct recorded_places){0};
	for (uint64_t i = 0; i < trace->count && !places->too_many; i++) {
		const struct block_data_record *record = &trace->records[i].block_data;

		if (trace_pass(trace, i))
			return -EINTR;
		int error = known.blocks ? 0 : -ENOMEM;
		if (!error && is_place(record))
			error = add(places, &known, record, table);
		if (error == -ENOMEM) {
			complain("no memory for the recorded places of %s: leave out --layout recorded", trace->path);
			return error;
		}
		places->too_many = error == -ENOSPC;
	}
	join(places);
	for (size_t i = 0; i < places->count; i++)
		places->bytes += places->pieces[i].bytes;
	if (places->count)
		qsort(places->pieces, places->count, sizeof(*places->pieces), compare_on_device);
	return 0;
}

void recorded_places_free(struct recorded_places *places)
{
	free(places->pieces);
	places->pieces = NULL;
}

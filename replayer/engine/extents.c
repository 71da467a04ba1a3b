// SPDX-License-Identifier: Apache-2.0
// Turns a part of a file into the places on its device where the file system has put it.
#include <errno.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "replayer/engine/extents.h"

enum {
	ASKED_EXTENTS = 256,
	PLACELESS = FIEMAP_EXTENT_UNKNOWN | FIEMAP_EXTENT_DELALLOC | FIEMAP_EXTENT_DATA_INLINE,
};

static int append(struct extents *extents, uint64_t offset, uint64_t place, uint64_t bytes)
{
	struct extent *last = extents->count ? &extents->list[extents->count - 1] : NULL;

	if (last && last->offset + last->bytes == offset && last->place + last->bytes == place) {
		last->bytes += bytes;
		return 0;
	}
	if (extents->count == extents->capacity) {
		size_t capacity = extents->capacity ? 2 * extents->capacity : ASKED_EXTENTS;
		struct extent *larger = reallocarray(extents->list, capacity, sizeof(*larger));

		if (!larger)
			return -ENOMEM;
		extents->list = larger;
		extents->capacity = capacity;
	}
	extents->list[extents->count++] = (struct extent){.offset = offset, .place = place, .bytes = bytes};
	return 0;
}

/* Takes what the kernel told from *offset on, as far as there is no gap. */
static int take(struct extents *extents, const struct fiemap *map, uint64_t *offset, uint64_t end)
{
	for (uint32_t i = 0; i < map->fm_mapped_extents && *offset < end; i++) {
		const struct fiemap_extent *told = &map->fm_extents[i];
		uint64_t told_end = told->fe_logical + told->fe_length;

		if (told_end <= *offset)
			continue;
		if (told->fe_logical > *offset || told->fe_flags & PLACELESS)
			return -ENODATA;
		uint64_t here = told_end < end ? told_end : end;
		int error = append(extents, *offset, told->fe_physical + *offset - told->fe_logical, here - *offset);
		if (error)
			return error;
		*offset = here;
	}
	return 0;
}

int extents_read(struct extents *extents, int descriptor, uint64_t offset, uint64_t bytes)
{
	static union {
		struct fiemap map;
		char room[sizeof(struct fiemap) + ASKED_EXTENTS * sizeof(struct fiemap_extent)];
	} asked;
	uint64_t end = offset + bytes;

	extents->count = 0;
	while (offset < end) {
		uint64_t before = offset;

		asked.map = (struct fiemap){
			.fm_start = offset,
			.fm_length = end - offset,
			.fm_flags = FIEMAP_FLAG_SYNC,
			.fm_extent_count = ASKED_EXTENTS,
		};
		if (ioctl(descriptor, FS_IOC_FIEMAP, &asked.map) < 0)
			return -errno;
		int error = take(extents, &asked.map, &offset, end);
		if (error)
			return error;
		if (offset == before)
			return -ENODATA;
	}
	return 0;
}

void extents_free(struct extents *extents)
{
	free(extents->list);
	*extents = (struct extents){0};
}

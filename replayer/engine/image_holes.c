// SPDX-License-Identifier: Apache-2.0
// Turns the recorded holes of a file into holes of the image's file, and tells where that has others.
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "bpf/cleanup.h"
#include "replayer/engine/image.h"
#include "replayer/engine/message.h"

enum { BLOCK_BYTES_MAX = 64 << 10 }; /* of a file system */

uint64_t image_find_hole(int descriptor, uint64_t from, uint64_t end)
{
	off_t hole = from < end ? lseek(descriptor, (off_t)from, SEEK_HOLE) : (off_t)end;

	if (hole < 0)
		return from; /* the file ends before */
	return (uint64_t)hole < end ? (uint64_t)hole : end;
}

int image_make_holes(const struct image *image, const struct file_table *table, uint32_t id, const char *name,
		     int descriptor)
{
	size_t count;
	const struct file_range *holes = file_holes(table, id, &count);

	for (size_t i = 0; i < count; i++) {
		uint64_t offset = holes[i].offset, end = holes[i].end;
		off_t data = offset < end ? lseek(descriptor, (off_t)offset, SEEK_DATA) : -1;

		if (data < 0 || (uint64_t)data >= end)
			continue;
		/* Only whole blocks become holes. */
		if (end == table->files[id].layout_bytes)
			end += BLOCK_BYTES_MAX;
		/* A file system that cannot do that keeps the data that an earlier replay wrote. */
		if (fallocate(descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
			      (off_t)(end - offset)) < 0 &&
		    errno != EOPNOTSUPP) {
			complain("cannot make a recorded hole of %s/%s again: %s", image->path, name, strerror(errno));
			return -errno;
		}
	}
	return 0;
}

int image_check_holes(const struct image *image, const struct file_table *table, uint32_t id, const char *name,
		      uint64_t taken_bytes)
{
	const struct file *file = &table->files[id];
	uint64_t from = 0;
	size_t count;

	/* Without holes of its own it is full, unless it is of the image of a trace in which it had some. */
	if (!file->hole_bytes && (!image->other_trace || taken_bytes >= file->layout_bytes))
		return 0;
	_cleanup_close_ int descriptor = openat(image->directory, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (descriptor < 0) {
		complain("cannot open %s/%s: %s", image->path, name, strerror(errno));
		return -errno;
	}
	const struct file_range *holes = file_holes(table, id, &count);
	for (size_t i = 0; i <= count; i++) {
		uint64_t end = i < count ? holes[i].offset : file->layout_bytes;

		if (image_find_hole(descriptor, from, end) < end) {
			complain(
				"%s/%s of the image has a hole where the trace's file has data: lay it out again, and let no other replay in meanwhile",
				image->path, name);
			return -ENOENT;
		}
		from = i < count ? holes[i].end : end;
	}
	return image_make_holes(image, table, id, name, descriptor);
}

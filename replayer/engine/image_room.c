// SPDX-License-Identifier: Apache-2.0
// Turns what an image, and what the trace writes, take of a file system beyond what is there into a refusal, or none.
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "replayer/engine/image.h"
#include "replayer/engine/message.h"

struct room_of_files {
	uint64_t bytes;
	uint64_t files;
};

static uint64_t bytes_on_device(const struct stat *status)
{
	return (uint64_t)status->st_blocks * 512;
}

/* What has to be written, and which files to be made. -EINTR after a stop. */
static int add_missing(const struct image *image, const struct file_table *table, struct room_of_files *needed)
{
	for (uint32_t id = 1; id < table->count; id++) {
		char name[IMAGE_NAME_BYTES];
		struct stat status;

		if (!table->files[id].laid_out)
			continue;
		if (atomic_load(image->stop))
			return -EINTR;
		image_name(name, table->files[id].directory, id);
		uint64_t there = 0;
		if (fstatat(image->directory, name, &status, AT_SYMLINK_NOFOLLOW) == 0)
			there = bytes_on_device(&status);
		else
			needed->files++;
		uint64_t data_bytes = file_data_bytes(&table->files[id]);
		if (data_bytes > there)
			needed->bytes = add_saturating(needed->bytes, data_bytes - there);
	}
	return 0;
}

/* Of a file that will be there: what is beyond its end, or in its holes. */
static uint64_t left_in(const struct file *file, const struct stat *status)
{
	uint64_t grain = (uint64_t)status->st_blksize, there = bytes_on_device(status);
	uint64_t kept = (file_data_bytes(file) + grain - 1) / grain * grain;

	return (file->exact_size || file->hole_bytes) && there > kept ? there - kept : 0;
}

/* What an earlier replay has left and the layout takes away before the trace runs. -EINTR after a stop. */
static int add_left(const struct image *image, const struct file_table *table, struct room_of_files *available)
{
	for (uint32_t id = 1; id < table->count; id++) {
		const struct file *file = &table->files[id];

		for (int directory = 0; file->used && directory < 2; directory++) {
			char name[IMAGE_NAME_BYTES];
			struct stat status;

			if (atomic_load(image->stop))
				return -EINTR;
			image_name(name, directory, id);
			/* Of a file with several names it is not known whether all go. */
			if (fstatat(image->directory, name, &status, AT_SYMLINK_NOFOLLOW) < 0 ||
			    (!S_ISDIR(status.st_mode) && status.st_nlink > 1))
				continue;
			available->bytes += file->laid_out ? left_in(file, &status) : bytes_on_device(&status);
			available->files += !file->laid_out;
		}
	}
	return 0;
}

static bool has_room(const struct room_of_files *available, const struct room_of_files *needed, bool files_are_counted)
{
	return needed->bytes <= available->bytes && (!files_are_counted || needed->files <= available->files);
}

int image_check_space(const struct image *image, const struct file_table *table)
{
	struct room_of_files needed = {table->growth_bytes, 0};
	struct statvfs space;

	if (!image->path)
		return 0;
	if (fstatvfs(image->directory, &space) < 0) {
		complain("cannot see how much space %s has: %s", image->path, strerror(errno));
		return -errno;
	}
	int error = add_missing(image, table, &needed);
	if (error)
		return error;
	needed.files += table->created_files;
	/* For a while the pieces are there twice. */
	if (!image_is_placed(image, table))
		needed.bytes = add_saturating(needed.bytes, image->places->bytes);
	/* Block maps and directories take room as well; 1 % is more than ext4, xfs and btrfs need. */
	needed.bytes = add_saturating(needed.bytes, needed.bytes / 100);
	struct room_of_files available = {(uint64_t)space.f_bavail * space.f_frsize, space.f_favail};
	if (!has_room(&available, &needed, space.f_files)) {
		error = add_left(image, table, &available);
		if (error)
			return error;
	}
	if (needed.bytes > available.bytes) {
		complain(
			"%s has too little space: the image, whose files have no holes but recorded ones, and what the trace writes need %llu bytes more, %llu are available, %llu are missing; give another directory or make room; 'flextrace replay' can insist with --force-space",
			image->path, (unsigned long long)needed.bytes, (unsigned long long)available.bytes,
			(unsigned long long)(needed.bytes - available.bytes));
		return -ENOSPC;
	}
	if (!has_room(&available, &needed, space.f_files)) {
		complain(
			"%s has too few inodes: the image and the files that the trace makes need %llu, %llu are free; give another directory; 'flextrace replay' can insist with --force-space",
			image->path, (unsigned long long)needed.files, (unsigned long long)available.files);
		return -ENOSPC;
	}
	return 0;
}

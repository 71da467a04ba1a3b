// SPDX-License-Identifier: Apache-2.0
/*
 * Turns recorded places into the order of the blocks of an image. A donor file without a name gets one contiguous piece of
 * the file system, whose parts change owners: by EXT4_IOC_MOVE_EXT on ext4, else by FICLONERANGE (btrfs, xfs and others
 * whose files can share blocks; the donor's share ends with it).
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "replayer/engine/image.h"
#include "replayer/engine/message.h"

enum { COPY_BYTES = 1 << 20 };

/* fs/ext4/ext4.h; in no header for programs. In blocks of the file system. */
struct move_extent {
	uint32_t reserved;
	uint32_t donor_fd;
	uint64_t orig_start;
	uint64_t donor_start;
	uint64_t len;
	uint64_t moved_len;
};
#define EXT4_IOC_MOVE_EXT _IOWR('f', 15, struct move_extent)

_Static_assert(sizeof(struct move_extent) == 40, "move_extent size");

/* Gives a piece of a file the donor's blocks from donor_offset on. */
typedef int give(const struct image *image, int file, int donor, const struct piece *piece, uint64_t donor_offset);

static void close_descriptor(const int *descriptor)
{
	if (*descriptor >= 0)
		close(*descriptor);
}

static int give_by_move(const struct image *image, int file, int donor, const struct piece *piece,
			uint64_t donor_offset)
{
	struct statfs system;

	if (fstatfs(image->directory, &system) < 0)
		return -errno;
	uint64_t block_bytes = (uint64_t)system.f_bsize;
	struct move_extent move = {
		.donor_fd = (uint32_t)donor,
		.orig_start = piece->offset / block_bytes,
		.donor_start = donor_offset / block_bytes,
		.len = piece->bytes / block_bytes,
	};
	while (move.len) {
		move.moved_len = 0;
		if (ioctl(file, EXT4_IOC_MOVE_EXT, &move) < 0)
			return -errno;
		if (!move.moved_len || move.moved_len > move.len)
			return -EIO;
		move.orig_start += move.moved_len;
		move.donor_start += move.moved_len;
		move.len -= move.moved_len;
	}
	return 0;
}

static int give_by_clone(const struct image *image, int file, int donor, const struct piece *piece,
			 uint64_t donor_offset)
{
	struct file_clone_range range = {
		.src_fd = donor,
		.src_offset = donor_offset,
		.src_length = piece->bytes,
		.dest_offset = piece->offset,
	};

	(void)image;
	return ioctl(file, FICLONERANGE, &range) < 0 ? -errno : 0;
}

/* Puts the data of a piece where its blocks are going to come from. */
static int copy_to_donor(const struct image *image, int file, int donor, const struct piece *piece,
			 uint64_t donor_offset)
{
	static _Alignas(4096) uint8_t data[COPY_BYTES];

	for (uint64_t at = 0; at < piece->bytes && !atomic_load(image->stop);) {
		size_t bytes = piece->bytes - at < COPY_BYTES ? piece->bytes - at : COPY_BYTES;
		ssize_t got = pread(file, data, bytes, (off_t)(piece->offset + at));
		ssize_t put = got > 0 ? pwrite(donor, data, (size_t)got, (off_t)(donor_offset + at)) : got;

		if (put <= 0)
			return put < 0 ? -errno : -EIO;
		at += (uint64_t)put;
	}
	return 0;
}

static int for_pieces(const struct image *image, int donor, give *act)
{
	uint64_t donor_offset = 0;

	for (size_t i = 0; i < image->places->count; i++) {
		const struct piece *piece = &image->places->pieces[i];
		char name[IMAGE_NAME_BYTES];

		if (atomic_load(image->stop))
			return -EINTR;
		image_name(name, false, piece->file);
		__attribute__((cleanup(close_descriptor))) int file =
			openat(image->directory, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
		int error = file < 0 ? -errno : act(image, file, donor, piece, donor_offset);
		if (error)
			return error;
		donor_offset += piece->bytes;
	}
	return 0;
}

static int place(const struct image *image, int donor)
{
	struct statfs system;

	if (donor < 0 || fstatfs(donor, &system) < 0 || fallocate(donor, 0, 0, (off_t)image->places->bytes) < 0)
		return -errno;
	if (system.f_type == EXT4_SUPER_MAGIC)
		return for_pieces(image, donor, give_by_move);
	int error = for_pieces(image, donor, copy_to_donor);
	if (!error && fdatasync(donor) < 0)
		error = -errno;
	return error ? error : for_pieces(image, donor, give_by_clone);
}

int image_place(const struct image *image)
{
	__attribute__((cleanup(close_descriptor))) int donor =
		openat(image->directory, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	int error = place(image, donor);
	if (!error && syncfs(image->directory) < 0)
		error = -errno;

	switch (error) {
	case 0:
	case -EINTR:
		return error;
	case -ENOSPC:
		complain("%s has too little space for --layout recorded, which needs %llu bytes for a while",
			 image->path, (unsigned long long)image->places->bytes);
		return error;
	case -EOPNOTSUPP:
	case -ENOTTY:
	case -EINVAL:
	case -EISDIR:
		complain("on the file system of %s nobody can choose blocks, as on ext4, btrfs and xfs (%s): leave out "
			 "--layout recorded",
			 image->path, strerror(-error));
		return -EOPNOTSUPP;
	default:
		complain("cannot give the files in %s their recorded places: %s; leave out --layout recorded",
			 image->path, strerror(-error));
		return error;
	}
}

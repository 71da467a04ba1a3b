// SPDX-License-Identifier: Apache-2.0
/*
 * Turns recorded places into the order of the blocks of an image. A donor file without a name gets room in the file
 * system, in one piece if there is one, whose parts change owners in the order of their places: by EXT4_IOC_MOVE_EXT on
 * ext4, else by FICLONERANGE (btrfs, xfs and others whose files can share blocks; the donor's share ends with it).
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "bpf/cleanup.h"
#include "replayer/engine/extents.h"
#include "replayer/engine/image.h"
#include "replayer/engine/message.h"

enum {
	COPY_BYTES = 1 << 20,
	MOVE_BYTES = 16 << 20, /* by one call, which no signal ends */
};

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

/* Does something with a piece of a file and as much of the donor, from donor_offset on. */
typedef int act_on(const struct image *image, int file, int donor, const struct piece *piece, uint64_t donor_offset);

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
	};
	for (uint64_t left = piece->bytes / block_bytes; left; left -= move.moved_len) {
		if (atomic_load(image->stop))
			return -EINTR;
		move.len = left < MOVE_BYTES / block_bytes ? left : MOVE_BYTES / block_bytes;
		move.moved_len = 0;
		if (ioctl(file, EXT4_IOC_MOVE_EXT, &move) < 0)
			return -errno;
		if (!move.moved_len || move.moved_len > move.len)
			return -EIO;
		move.orig_start += move.moved_len;
		move.donor_start += move.moved_len;
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

static int open_file(const struct image *image, const struct piece *piece, int flags)
{
	char name[IMAGE_NAME_BYTES];

	image_name(name, false, piece->file);
	int file = openat(image->directory, name, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	return file < 0 ? -errno : file;
}

/* What of the donor is not dealt out yet: its extents in the order of their places. */
struct supply {
	const struct extent *next;
	const struct extent *end;
	uint64_t used; /* of the next one */
};

static int deal(const struct image *image, int donor, const struct piece *piece, struct supply *supply, act_on *act)
{
	_cleanup_close_ int file = open_file(image, piece, O_RDWR);
	struct piece part = *piece;

	if (file < 0)
		return file;
	for (uint64_t left = piece->bytes; left; left -= part.bytes) {
		if (atomic_load(image->stop))
			return -EINTR;
		if (supply->next == supply->end)
			return -EIO;
		uint64_t room = supply->next->bytes - supply->used;
		part.bytes = left < room ? left : room;
		int error = act(image, file, donor, &part, supply->next->offset + supply->used);
		if (error)
			return error;
		part.offset += part.bytes;
		supply->used += part.bytes;
		if (supply->used == supply->next->bytes)
			*supply = (struct supply){.next = supply->next + 1, .end = supply->end};
	}
	return 0;
}

static int for_pieces(const struct image *image, int donor, const struct extents *extents, act_on *act)
{
	struct supply supply = {.next = extents->list, .end = extents->list + extents->count};
	int error = 0;

	for (size_t i = 0; i < image->places->count && !error; i++)
		error = deal(image, donor, &image->places->pieces[i], &supply, act);
	return error;
}

static int compare_places(const void *left, const void *right)
{
	const struct extent *a = left, *b = right;

	return a->place < b->place ? -1 : a->place > b->place;
}

static int open_donor(const struct image *image, uint64_t bytes)
{
	int donor = openat(image->directory, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	if (donor < 0)
		return -errno;
	if (fallocate(donor, 0, 0, (off_t)bytes) < 0) {
		int error = errno;

		close(donor);
		return -error;
	}
	return donor;
}

/* 1 where blocks change owners by moves, 0 where by clones. */
static int moves_blocks(const struct image *image)
{
	struct statfs system;

	if (fstatfs(image->directory, &system) < 0)
		return -errno;
	if (system.f_type != EXT4_SUPER_MAGIC)
		return 0;
	return system.f_bsize > PIECE_GRAIN_BYTES ? -EINVAL : 1;
}

static int place(const struct image *image)
{
	_cleanup_close_ int donor = open_donor(image, image->places->bytes);
	__attribute__((cleanup(extents_free))) struct extents extents = {0};
	int moves = moves_blocks(image);

	if (donor < 0 || moves < 0)
		return donor < 0 ? donor : moves;
	int error = extents_read(&extents, donor, 0, image->places->bytes);
	if (error)
		return error;
	/* Where the free space is in pieces, a file system may hand them out in any order. */
	qsort(extents.list, extents.count, sizeof(*extents.list), compare_places);
	if (moves)
		return for_pieces(image, donor, &extents, give_by_move);
	error = for_pieces(image, donor, &extents, copy_to_donor);
	if (!error && fdatasync(donor) < 0)
		error = -errno;
	return error ? error : for_pieces(image, donor, &extents, give_by_clone);
}

static int complain_of(const struct image *image, int error)
{
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
	case -ENODATA:
		complain(
			"on the file system of %s nobody can choose blocks (%s), as with the defaults of ext4, btrfs and xfs: leave out --layout recorded",
			image->path, strerror(-error));
		return -EOPNOTSUPP;
	default:
		complain("cannot give the files in %s their recorded places: %s; leave out --layout recorded",
			 image->path, strerror(-error));
		return error;
	}
}

int image_place(const struct image *image)
{
	int error = place(image);

	/* The donor is gone by now, so that its room is free again, and no write meets a block that it shares. */
	if (!error && syncfs(image->directory) < 0)
		error = -errno;
	for (size_t i = 0; i < image->places->count && !error; i++) {
		_cleanup_close_ int file = open_file(image, &image->places->pieces[i], O_RDONLY);

		error = file < 0 ? file : 0;
		if (!error)
			posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
	}
	return complain_of(image, error);
}

/* Tries it with one block. */
static int try_out(const struct image *image)
{
	_cleanup_close_ int file = open_donor(image, PIECE_GRAIN_BYTES);
	_cleanup_close_ int donor = open_donor(image, PIECE_GRAIN_BYTES);
	__attribute__((cleanup(extents_free))) struct extents extents = {0};
	const struct piece piece = {.bytes = PIECE_GRAIN_BYTES};
	int moves = moves_blocks(image);

	if (file < 0 || donor < 0 || moves < 0)
		return file < 0 ? file : donor < 0 ? donor : moves;
	int error = extents_read(&extents, donor, 0, PIECE_GRAIN_BYTES);
	if (error)
		return error;
	static const char data[PIECE_GRAIN_BYTES];
	if (pwrite(file, data, sizeof(data), 0) < 0 || fdatasync(file) < 0)
		return -errno;
	return moves ? give_by_move(image, file, donor, &piece, 0) : give_by_clone(image, file, donor, &piece, 0);
}

int image_can_place(const struct image *image)
{
	return complain_of(image, try_out(image));
}

int image_see_places(const struct image *image, struct places_seen *seen)
{
	__attribute__((cleanup(extents_free))) struct extents extents = {0};
	uint64_t end = 0;

	*seen = (struct places_seen){0};
	for (size_t i = 0; i < image->places->count; i++) {
		const struct piece *piece = &image->places->pieces[i];
		_cleanup_close_ int file = open_file(image, piece, O_RDONLY);
		int error = file < 0 ? file : extents_read(&extents, file, piece->offset, piece->bytes);

		if (atomic_load(image->stop))
			error = -EINTR;
		if (error)
			return error;
		for (size_t j = 0; j < extents.count; j++) {
			seen->runs += !seen->runs || extents.list[j].place != end;
			seen->backward += extents.list[j].place < end;
			end = extents.list[j].place + extents.list[j].bytes;
		}
	}
	return 0;
}

// SPDX-License-Identifier: Apache-2.0
// Turns a directory into the place of a replay, and the table of files into files there.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bpf/cleanup.h"
#include "replayer/engine/data_fill.h"
#include "replayer/engine/image.h"
#include "replayer/engine/listing.h"
#include "replayer/engine/message.h"

void image_name(char name[static IMAGE_NAME_BYTES], bool directory, uint32_t id)
{
	snprintf(name, IMAGE_NAME_BYTES, "%c%08u", directory ? 'd' : 'f', id);
}

static bool is_image_name(const char *name)
{
	size_t digits = strspn(name + 1, "0123456789");

	return (name[0] == 'f' || name[0] == 'd') && digits >= 8 && name[digits + 1] == '\0';
}

static int check_content(const struct image *image)
{
	_cleanup_closedir_ DIR *listing = listing_open(image->directory);
	char foreign[NAME_MAX + 1] = "";

	for (const struct dirent *entry; listing && (entry = listing_next(listing));) {
		if (!strcmp(entry->d_name, IMAGE_MARKER))
			return 0;
		/* A new ext4 file system is not quite empty. What only has the name of an image's file may be a copy. */
		if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..") && strcmp(entry->d_name, "lost+found") &&
		    !seal_is_name(entry->d_name))
			snprintf(foreign, sizeof(foreign), "%s", entry->d_name);
	}
	if (errno) {
		complain("cannot list %s: %s", image->path, strerror(errno));
		return -errno;
	}
	if (!foreign[0])
		return 0;
	complain("%s holds files that are not a replay's, such as %s: give an empty or a new directory", image->path,
		 foreign);
	return -ENOTEMPTY;
}

static int open_directory(struct image *image)
{
	const char *path = image->path;

	if (mkdir(path, 0755) == 0) {
		image->made_directory = true;
	} else if (errno != EEXIST) {
		int error = errno;

		complain("cannot make directory %s: %s%s", path, strerror(error), way_remedy(error, path));
		return -error;
	}
	image->directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (image->directory < 0) {
		complain("cannot use %s as the directory of a replay: %s", path, strerror(errno));
		return -errno;
	}
	return 0;
}

int image_open(struct image *image)
{
	if (!image->path) {
		/* So that a sync of the file system has something to go to; names are refused there (ENOTDIR). */
		image->directory = target_reopen(image->target, O_CLOEXEC);
		if (image->directory >= 0)
			return 0;
		complain("cannot open %s again by /proc/self/fd: %s; replay where /proc is mounted",
			 image->target->path, strerror(-image->directory));
		return image->directory;
	}
	/* One that was handed down has the lock of who did that. */
	int error = image->directory < 0 ? open_directory(image) : 0;
	if (error)
		return error;
	if (flock(image->directory, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK) {
		complain("%s is used by another replay: wait for it, or give another directory", image->path);
		return -EBUSY;
	}
	return check_content(image);
}

int image_use_target(struct image *image, struct file_table *table)
{
	const struct target *target = image->target;
	uint32_t devices = 0;

	for (uint32_t id = 1; id < table->count; id++) {
		struct file *file = &table->files[id];

		if (!file->used)
			continue;
		if (!file->block_device) {
			if (image->path)
				continue;
			complain("the trace uses other files beside the device: give --directory for them");
			return -EINVAL;
		}
		if (devices++) {
			complain("the trace uses more than one block device, --device names only %s", target->path);
			return -EINVAL;
		}
		if (file->layout_bytes > target->size_bytes) {
			complain("%s is too small: the trace reaches up to byte %llu, it has %llu; give a larger one",
				 target->path, (unsigned long long)file->layout_bytes,
				 (unsigned long long)target->size_bytes);
			return -ENOSPC;
		}
		file->on_device = true;
		if (!file->laid_out)
			continue;
		file->laid_out = false;
		table->laid_out_files--;
		table->laid_out_bytes -= file->layout_bytes;
		table->unmeasured -= file_is_unmeasured(file);
	}
	if (!devices) {
		complain("the trace uses no block device: there is nothing to do on %s", target->path);
		return -EINVAL;
	}
	return 0;
}

static uint64_t hash_number(uint64_t hash, uint64_t number)
{
	for (int byte = 0; byte < 8; byte++)
		hash = (hash ^ (number >> (8 * byte) & 0xff)) * 0x100000001b3ull; /* FNV-1a */
	return hash;
}

uint64_t image_hash(const struct image *image, const struct file_table *table)
{
	uint64_t hash = 0xcbf29ce484222325ull;

	for (uint32_t id = 1; id < table->count; id++) {
		const struct file *file = &table->files[id];

		if (!file->laid_out)
			continue;
		hash = hash_number(hash_number(hash, id), file->directory);
		hash = hash_number(hash, file->layout_bytes);
		size_t holes;
		const struct file_range *hole = file_holes(table, id, &holes);
		for (; holes; holes--, hole++)
			hash = hash_number(hash_number(hash, hole->offset), hole->end);
	}
	for (size_t i = 0; image->places && i < image->places->count; i++) {
		const struct piece *piece = &image->places->pieces[i];

		hash = hash_number(hash_number(hash, piece->file), piece->offset);
		hash = hash_number(hash, piece->bytes);
	}
	return hash;
}

bool image_is_placed(const struct image *image, const struct file_table *table)
{
	struct places_seen seen;
	struct seal seal;

	if (!image->places || !image->places->count)
		return true;
	if (seal_read(image->directory, &seal) || !seal.finished || seal.data_percent != image->data_percent ||
	    seal.files_hash != image_hash(image, table))
		return false;
	/* Replays since then may have made files anew, or written on a file system that writes elsewhere each time. */
	return !image_see_places(image, &seen) && !seen.backward;
}

static int check_seal(struct image *image, const struct file_table *table)
{
	char there[DATA_NAME_BYTES], wanted[DATA_NAME_BYTES];
	struct seal seal;
	int error = seal_read(image->directory, &seal);

	if (error) {
		complain("cannot list %s: %s", image->path, strerror(-error));
		return error;
	}
	if (!seal.found || !seal.finished) {
		complain("%s holds no finished image: lay it out again, and let no other replay in meanwhile",
			 image->path);
		return -ENOENT;
	}
	if (seal.data_percent != image->data_percent) {
		data_name(there, seal.data_percent);
		data_name(wanted, image->data_percent);
		complain(
			"the image in %s has --data %s, not %s: lay it out again, and let no other replay in meanwhile",
			image->path, there, wanted);
		return -ENOENT;
	}
	image->other_trace = seal.files_hash != image_hash(image, table);
	if (image->other_trace && image->places && image->places->count) {
		complain(
			"the image in %s was not made with --layout recorded of this trace: lay it out again, and let no other replay in meanwhile",
			image->path);
		return -ENOENT;
	}
	return 0;
}

int image_check(struct image *image, const struct file_table *table)
{
	int error = image->path ? check_seal(image, table) : 0;

	if (error)
		return error;
	for (uint32_t id = 1; id < table->count; id++) {
		const struct file *file = &table->files[id];
		char name[IMAGE_NAME_BYTES];
		struct stat status;

		if (!file->laid_out)
			continue;
		if (atomic_load(image->stop))
			return -EINTR;
		image_name(name, file->directory, id);
		if (fstatat(image->directory, name, &status, AT_SYMLINK_NOFOLLOW) < 0) {
			complain(
				"%s/%s of the image is missing (%s): lay it out again, and let no other replay in meanwhile",
				image->path, name, strerror(errno));
			return -ENOENT;
		}
		if (file->directory ? !S_ISDIR(status.st_mode) : !S_ISREG(status.st_mode)) {
			complain("%s/%s is not what a replay made: remove it", image->path, name);
			return -EINVAL;
		}
		uint64_t size = (uint64_t)status.st_size;
		if (!file->directory &&
		    (size < file->layout_bytes || (size > file->layout_bytes && file->exact_size))) {
			complain(
				"%s/%s of the image has %lld bytes, the trace needs %llu: lay it out again, and let no other replay in meanwhile",
				image->path, name, (long long)status.st_size, (unsigned long long)file->layout_bytes);
			return -ENOENT;
		}
		if (!file->directory)
			error = image_check_holes(image, table, id, name, (uint64_t)status.st_blocks * 512);
		if (error)
			return error;
	}
	return 0;
}

int image_check_links(const struct image *image, const struct file_table *table)
{
	for (uint32_t id = 1; id < table->count; id++) {
		char name[IMAGE_NAME_BYTES];
		struct stat status;

		if (!table->files[id].laid_out || table->files[id].directory)
			continue;
		if (atomic_load(image->stop))
			return -EINTR;
		image_name(name, false, id);
		if (fstatat(image->directory, name, &status, AT_SYMLINK_NOFOLLOW) == 0 && status.st_nlink > 1) {
			complain(
				"%s/%s of the image has another name as well, by a link that a replay of another trace made: lay it out again, and let no other replay in meanwhile",
				image->path, name);
			return -ENOENT;
		}
	}
	return 0;
}

int image_remove_name(const struct image *image, const char *name)
{
	struct stat status;
	/* Looks first: an unlink that fails would be in a recording of this replay. */
	int failed = fstatat(image->directory, name, &status, AT_SYMLINK_NOFOLLOW);

	if (!failed)
		failed = unlinkat(image->directory, name, S_ISDIR(status.st_mode) ? AT_REMOVEDIR : 0);
	if (!failed || errno == ENOENT)
		return 0;
	complain("cannot remove %s/%s: %s", image->path, name, strerror(errno));
	return -errno;
}

int image_remove_created(const struct image *image, const struct file_table *table)
{
	if (!image->path)
		return 0;
	for (uint32_t id = 1; id < table->count; id++) {
		char name[IMAGE_NAME_BYTES];

		if (!table->files[id].used || table->files[id].laid_out)
			continue;
		if (atomic_load(image->stop))
			return -EINTR;
		for (int directory = 0; directory < 2; directory++) {
			image_name(name, directory, id);
			int error = image_remove_name(image, name);

			if (error)
				return error;
		}
	}
	return 0;
}

/* Removes all whose names are of a kind. */
static int remove_names(const struct image *image, bool (*is_of_kind)(const char *name))
{
	_cleanup_closedir_ DIR *listing = listing_open(image->directory);

	for (const struct dirent *entry; listing && (entry = listing_next(listing));) {
		int error = is_of_kind(entry->d_name) ? image_remove_name(image, entry->d_name) : 0;

		if (error)
			return error;
	}
	if (errno)
		complain("cannot list %s to remove its files: %s", image->path, strerror(errno));
	return -errno;
}

int image_remove_files(const struct image *image)
{
	return remove_names(image, is_image_name);
}

int image_remove(struct image *image)
{
	if (!image->path)
		return 0;
	int error = image_remove_files(image);

	/* Last, so that what a removal leaves that is killed is still an image. */
	if (!error)
		error = remove_names(image, seal_is_name);
	if (error)
		return error;
	if (image->made_directory)
		rmdir(image->path); /* stays if somebody put something into it */
	return 0;
}

void image_close(struct image *image)
{
	if (image->directory >= 0)
		close(image->directory);
	image->directory = -1;
}

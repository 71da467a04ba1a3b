// SPDX-License-Identifier: Apache-2.0
// Turns the table of files into files with real data where the originals had some: zeros would be read faster.
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bpf/cleanup.h"
#include "replayer/engine/data_fill.h"
#include "replayer/engine/image.h"
#include "replayer/engine/image_seal.h"
#include "replayer/engine/message.h"

enum {
	CHUNK_BYTES = 1 << 20,
	FLUSH_BYTES = 64 << 20, /* dirty data at one time, so that a small memory group can lay out a large file */
	SYNC_FILES = 256, /* more files than this are flushed by one syncfs instead of one fsync each */
};

/* Writes [from, size) of a file. */
static int write_data(struct image *image, int descriptor, const char *name, uint64_t from, uint64_t size)
{
	static _Alignas(4096) uint8_t chunk[CHUNK_BYTES];
	uint64_t flushed = from;

	while (from < size) {
		uint64_t bytes = size - from < CHUNK_BYTES ? size - from : CHUNK_BYTES;

		if (atomic_load(image->stop))
			return -EINTR;
		fill_data(chunk, bytes, image->built_bytes + (uint64_t)descriptor, image->data_percent);
		ssize_t done = pwrite(descriptor, chunk, bytes, (off_t)from);
		if (done <= 0) {
			int error = done < 0 ? errno : EIO;

			complain("cannot lay out %s/%s (%llu bytes): %s%s", image->path, name, (unsigned long long)size,
				 strerror(error), room_remedy(error));
			return -error;
		}
		from += (uint64_t)done;
		image->built_bytes += (uint64_t)done;
		if (from - flushed >= FLUSH_BYTES) {
			if (fdatasync(descriptor) < 0) {
				complain("cannot write %s/%s to its device: %s%s", image->path, name, strerror(errno),
					 room_remedy(errno));
				return -errno;
			}
			posix_fadvise(descriptor, (off_t)flushed, 0, POSIX_FADV_DONTNEED);
			flushed = from;
		}
	}
	return 0;
}

/*
 * Replays of other traces leave names that are no files of their own: second names of a file, and symbolic links. Any other
 * symbolic link is somebody else's, and refused later.
 */
static int remove_link(const struct image *image, const char *name)
{
	static const char text[] = IMAGE_MARKER;
	char found[sizeof(text)];
	struct stat status;

	if (fstatat(image->directory, name, &status, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	bool ours = S_ISREG(status.st_mode)
			    ? status.st_nlink > 1
			    : readlinkat(image->directory, name, found, sizeof(found)) == sizeof(text) - 1 &&
				      !memcmp(found, text, sizeof(text) - 1);
	return ours ? image_remove_name(image, name) : 0;
}

/* Writes what is missing between the holes; *written_from becomes where that begins, if it does before. */
static int fill_file(struct image *image, const struct file_table *table, uint32_t id, const char *name, int descriptor,
		     uint64_t *written_from)
{
	uint64_t from = 0;
	size_t count;
	const struct file_range *holes = file_holes(table, id, &count);

	for (size_t i = 0; i <= count; i++) {
		uint64_t end = i < count ? holes[i].offset : table->files[id].layout_bytes;
		uint64_t missing = image_find_hole(descriptor, from, end);

		if (missing < end) {
			int error = write_data(image, descriptor, name, missing, end);

			if (error)
				return error;
			*written_from = missing < *written_from ? missing : *written_from;
		}
		from = i < count ? holes[i].end : end;
	}
	return 0;
}

/* From *evict_from on it is to leave the page cache: at once if it is flushed, else its writing begins. */
static int lay_out_file(struct image *image, const struct file_table *table, uint32_t id, const char *name, bool flush,
			uint64_t *evict_from)
{
	const struct file *file = &table->files[id];
	_cleanup_close_ int descriptor =
		openat(image->directory, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600);
	struct stat status;

	if (descriptor < 0 || fstat(descriptor, &status) < 0) {
		complain("cannot lay out %s/%s: %s%s", image->path, name, strerror(errno), room_remedy(errno));
		return -errno;
	}
	if (!S_ISREG(status.st_mode)) {
		complain("%s/%s is not what a replay made: remove it", image->path, name);
		return -EINVAL;
	}
	uint64_t there = (uint64_t)status.st_size;
	/* A read at the end must come back as short as it was recorded. Else a larger file serves as well. */
	bool too_large = file->exact_size && there > file->layout_bytes;
	/* What is not written then is a hole. */
	bool too_small = file->hole_bytes && there < file->layout_bytes;
	if ((too_large || too_small) && ftruncate(descriptor, (off_t)file->layout_bytes) < 0) {
		complain("cannot give %s/%s its size of %llu bytes: %s%s", image->path, name,
			 (unsigned long long)file->layout_bytes, strerror(errno), room_remedy(errno));
		return -errno;
	}
	uint64_t written_from = there;
	int error = image_make_holes(image, table, id, name, descriptor);
	if (!error)
		error = fill_file(image, table, id, name, descriptor, &written_from);
	if (error)
		return error;
	*evict_from = image->keep_cached ? written_from : 0;
	if (flush && fsync(descriptor) < 0) {
		complain("cannot write %s/%s to its device: %s%s", image->path, name, strerror(errno),
			 room_remedy(errno));
		return -errno;
	}
	/* xfs keeps as much again reserved behind a file that has grown before, and counts it as used. */
	if (flush && there && there < file->layout_bytes && ftruncate(descriptor, (off_t)file->layout_bytes) < 0) {
		complain("cannot end %s/%s after %llu bytes: %s", image->path, name,
			 (unsigned long long)file->layout_bytes, strerror(errno));
		return -errno;
	}
	posix_fadvise(descriptor, (off_t)*evict_from, 0, POSIX_FADV_DONTNEED);
	return 0;
}

static int write_marker(const struct image *image)
{
	static const char text[] =
		"A flextrace replay's image: its files may be overwritten and removed at any time.\n";
	_cleanup_close_ int descriptor =
		openat(image->directory, IMAGE_MARKER, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);

	if (descriptor < 0 || pwrite(descriptor, text, sizeof(text) - 1, 0) != (ssize_t)sizeof(text) - 1) {
		int error = errno ? errno : EIO;

		complain("cannot write to %s: %s%s", image->path, strerror(error), room_remedy(error));
		return -error;
	}
	return 0;
}

static int write_seal(const struct image *image, const struct file_table *table, bool finished)
{
	struct seal seal = {.finished = finished, .data_percent = image->data_percent};

	if (finished)
		seal.files_hash = image_hash(image, table);
	int error = seal_write(image->directory, &seal);
	if (error)
		complain("cannot write to %s: %s%s", image->path, strerror(-error), room_remedy(-error));
	return error;
}

/* All files at once. Only what is on the device can leave the page cache. */
static int flush_files(const struct image *image, const struct file_table *table, const uint64_t *evict_from)
{
	if (syncfs(image->directory) < 0) {
		complain("cannot write the image in %s to its device: %s%s", image->path, strerror(errno),
			 room_remedy(errno));
		return -errno;
	}
	for (uint32_t id = 1; id < table->count && !atomic_load(image->stop); id++) {
		char name[IMAGE_NAME_BYTES];

		if (!table->files[id].laid_out || table->files[id].directory)
			continue;
		image_name(name, false, id);
		_cleanup_close_ int descriptor = openat(image->directory, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
		if (descriptor >= 0)
			posix_fadvise(descriptor, (off_t)evict_from[id], 0, POSIX_FADV_DONTNEED);
	}
	return 0;
}

static int lay_out_files(struct image *image, const struct file_table *table)
{
	bool flush_each = table->laid_out_files <= SYNC_FILES;
	_cleanup_free_ uint64_t *evict_from = calloc(table->count, sizeof(*evict_from));

	if (!evict_from) {
		complain("no memory to lay out %u files", table->laid_out_files);
		return -ENOMEM;
	}
	/* First, so that what a pass has linked has one name again. */
	int error = image_remove_created(image, table);

	for (uint32_t id = 1; id < table->count && !error; id++) {
		const struct file *file = &table->files[id];
		char name[IMAGE_NAME_BYTES];

		if (!file->laid_out)
			continue;
		if (atomic_load(image->stop))
			return -EINTR;
		image_name(name, file->directory, id);
		if (!file->directory) {
			error = remove_link(image, name);
			if (!error)
				error = lay_out_file(image, table, id, name, flush_each, &evict_from[id]);
		} else if (mkdirat(image->directory, name, 0755) < 0 && errno != EEXIST) {
			error = -errno;
			complain("cannot make directory %s/%s: %s", image->path, name, strerror(-error));
		}
	}
	return error || flush_each ? error : flush_files(image, table, evict_from);
}

int image_lay_out(struct image *image, const struct file_table *table)
{
	struct seal seal;

	if (!image->path)
		return 0;
	if (image->sealed) { /* between two passes */
		int error = lay_out_files(image, table);

		return error || image_is_placed(image, table) ? error : image_place(image);
	}
	bool placed = image_is_placed(image, table);
	int error = placed ? 0 : image_can_place(image);
	if (!error) {
		image->begun = faccessat(image->directory, IMAGE_MARKER, F_OK, AT_SYMLINK_NOFOLLOW) < 0;
		error = write_marker(image);
	}
	if (!error)
		error = seal_read(image->directory, &seal);
	/* Before a seal says that all data is of this kind, which is believed also if what follows is interrupted. */
	if (!error && (!seal.found || seal.data_percent != image->data_percent))
		error = image_remove_files(image);
	if (!error)
		error = write_seal(image, table, false);
	if (!error)
		error = lay_out_files(image, table);
	if (!error && !placed)
		error = image_place(image);
	if (!error)
		error = write_seal(image, table, true);
	image->sealed = !error;
	return error;
}

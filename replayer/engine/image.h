/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns the table of files into files of a directory: the state that the first operation of the trace expects. Touches
 * nothing outside the directory and, inside it, only names of its own making (f00000012, d00000003, marker and seal).
 */
#ifndef FLEXTRACE_IMAGE_H
#define FLEXTRACE_IMAGE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "replayer/engine/files.h"
#include "replayer/engine/image_seal.h"
#include "replayer/engine/recorded_places.h"
#include "replayer/engine/target_guard.h"

enum { IMAGE_NAME_BYTES = 16 };

/* How the recorded places lie on the image's device. */
struct places_seen {
	uint64_t runs; /* parts that do not begin where the one before ends, the first one counted as well */
	uint64_t backward; /* of these, parts that lie before the one that they should follow */
};

struct image {
	const char *path; /* NULL where the trace needs no directory: it has only the device */
	int directory; /* descriptor, locked against a second replay */
	const struct target
		*target; /* the device that takes the place of the trace's block devices; NULL = none does */
	unsigned int data_percent; /* kind of data, see data_fill.h */
	const struct recorded_places *places; /* in whose order data gets its blocks; NULL = the file system chooses */
	struct places_seen seen; /* of these places, when the image was ready */
	bool keep_cached; /* of what is there already */
	bool sealed; /* laid out by this process */
	bool other_trace; /* laid out for another one, whose files serve as well */
	bool made_directory; /* did not exist before */
	bool begun; /* laying out has begun where no image was before */
	uint64_t built_bytes; /* written to lay files out; the rest was there already */
	const atomic_bool *stop;
};

/* Of a device that the user did not allow to be written; its descriptors are read-only, too. */
static inline bool image_protects(const struct image *image, const struct file *file)
{
	return file->on_device && !image->target->writable;
}

void image_name(char name[static IMAGE_NAME_BYTES], bool directory, uint32_t id);

/*
 * Opens or makes the directory, if there is one and it is not open, and locks it; refuses one that holds anything, unless it
 * carries the marker.
 */
int image_open(struct image *image);

/*
 * Puts the trace's block device onto the target; before anything else is done with the table. Refuses a target that is
 * too small, more than one device in the trace, and files that have no place when there is no directory.
 */
int image_use_target(struct image *image, struct file_table *table);

/* Refuses (-ENOSPC) when the image and what the trace writes do not fit. Writes nothing. */
int image_check_space(const struct image *image, const struct file_table *table);

/*
 * Gives every file its size, with data of the wanted kind and no holes but the recorded ones, on the device and out of the
 * page cache (with keep_cached only what it writes). What is there of an earlier replay is used again, unless its data is of
 * another kind, and then removed before anything is made. -EINTR after a stop, silently: between two passes that is no
 * failure.
 */
int image_lay_out(struct image *image, const struct file_table *table);

/*
 * Refuses (-ENOENT) an image that was not finished or has data of another kind, and one of which a file is missing, too
 * small, too large where its end matters, or has a hole where the trace's has data. Recorded holes that were written to are
 * made again.
 */
int image_check(struct image *image, const struct file_table *table);

/* Where from `from` on a file has no data, at most `end`. */
uint64_t image_find_hole(int descriptor, uint64_t from, uint64_t end);

/* Gives a file of the image its recorded holes; what an earlier replay has written there goes. */
int image_make_holes(const struct image *image, const struct file_table *table, uint32_t id, const char *name,
		     int descriptor);

/*
 * Refuses (-ENOENT) a file of the image that has a hole where the trace's file has data, and gives it its recorded holes.
 * taken_bytes: what it takes on the device.
 */
int image_check_holes(const struct image *image, const struct file_table *table, uint32_t id, const char *name,
		      uint64_t taken_bytes);

/* Refuses (-EOPNOTSUPP) a file system that lets nobody choose blocks. Leaves nothing behind. */
int image_can_place(const struct image *image);

/*
 * Gives the pieces of image->places their blocks in that order, one behind the other as far as there is room in one piece;
 * for a while they take twice their room. -EINTR after a stop.
 */
int image_place(const struct image *image);

/* -ENODATA, -ENOENT when a piece is not there, -EINTR after a stop; says nothing. */
int image_see_places(const struct image *image, struct places_seen *seen);

/* Whether the data has its blocks in the wanted order: it is already so, or none is wanted. */
bool image_is_placed(const struct image *image, const struct file_table *table);

/* Hash of which files an image has, of their sizes, holes and places. */
uint64_t image_hash(const struct image *image, const struct file_table *table);

/* Removes files that do not exist at the start of the trace. */
int image_remove_created(const struct image *image, const struct file_table *table);

/* Refuses (-ENOENT) an image in which a file has a second name, which may be that of another file of the trace. */
int image_check_links(const struct image *image, const struct file_table *table);

/* Removes a file or an empty directory of the image, if it is there. */
int image_remove_name(const struct image *image, const char *name);

/* Removes all files and directories of the image, those of other traces as well. */
int image_remove_files(const struct image *image);

/* Removes the image, and the directory if image_open() made it. */
int image_remove(struct image *image);
void image_close(struct image *image);

#endif

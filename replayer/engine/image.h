/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns the table of files into files of a directory: the state that the first operation of the trace expects. Touches
 * nothing outside the directory and, inside it, only names of its own making (f00000012, d00000003, the marker).
 */
#ifndef FLEXTRACE_IMAGE_H
#define FLEXTRACE_IMAGE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "replayer/engine/files.h"

#define IMAGE_MARKER ".flextrace-image"

enum { IMAGE_NAME_BYTES = 16 };

struct image {
	const char *path;
	int directory; /* descriptor, locked against a second replay */
	bool made_directory; /* did not exist before */
	uint64_t built_bytes; /* written to lay files out; the rest was there already */
	const atomic_bool *stop;
};

void image_name(char name[static IMAGE_NAME_BYTES], bool directory, uint32_t id);

/* Opens or makes the directory; refuses one that holds anything else than an image, unless it carries the marker. */
int image_open(struct image *image, const char *path, const atomic_bool *stop);

/* Refuses (-ENOSPC) when the image and what the trace writes do not fit. Writes nothing. */
int image_check_space(const struct image *image, const struct file_table *table);

/* Gives every file its size, with pseudo-random data and without holes, on the device and out of the page cache. */
int image_lay_out(struct image *image, const struct file_table *table);

/* Refuses (-ENOENT) when a file is missing, too small, or too large where its end matters. */
int image_check(const struct image *image, const struct file_table *table);

/* Removes files that do not exist at the start of the trace. */
int image_remove_created(const struct image *image, const struct file_table *table);

/* Removes the image, and the directory if image_open() made it. */
int image_remove(struct image *image);
void image_close(struct image *image);

/* Fills a buffer with pseudo-random bytes that no file system compresses or shares. */
void fill_random(void *buffer, uint64_t bytes, uint64_t seed);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns a number into data for files and writes: pseudo-random, or such that it compresses to a known share of its size,
 * since file systems (btrfs), swap devices (zram) and SSDs that compress take less time for less data.
 */
#ifndef FLEXTRACE_DATA_FILL_H
#define FLEXTRACE_DATA_FILL_H

#include <stdint.h>

enum {
	DATA_RANDOM_PERCENT = 100, /* nothing compresses */
	DATA_COMPRESSIBLE_PERCENT = 50, /* what `compressible` is, where no number is given */
	DATA_NAME_BYTES = 24,
};

/*
 * In every 4 KiB of the buffer, `percent` of the bytes are pseudo-random and the rest are one byte repeated: a
 * compressor leaves about that share, whatever the size of the pieces that it compresses from 4 KiB on.
 */
void fill_data(void *buffer, uint64_t bytes, uint64_t seed, unsigned int percent);

/* "random", "compressible" or "compressible:PERCENT" (1 to 100) as a percentage; -EINVAL for anything else. */
int data_parse(const char *text);

/* "random" or "compressible:PERCENT". */
void data_name(char name[static DATA_NAME_BYTES], unsigned int percent);

#endif

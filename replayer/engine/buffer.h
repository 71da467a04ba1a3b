/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns a size into memory for requests of that size. A large buffer is one small piece of memory mapped again and
 * again: requests stay one system call, and a trace with 1 GiB requests does not need 1 GiB per thread.
 */
#ifndef FLEXTRACE_BUFFER_H
#define FLEXTRACE_BUFFER_H

#include <stdint.h>

enum { BUFFER_WINDOW_BYTES = 8 << 20 };

/*
 * All writes take their data from one buffer, from one page after the other in steps: what is written within 128 KiB, the
 * most that a file system compresses at once (btrfs), holds no page twice.
 */
enum {
	WRITE_PLACES = 256,
	WRITE_STEP = 97,
	WRITE_PLACE_BYTES = 4096,
	WRITE_SLACK_BYTES = WRITE_PLACES * WRITE_PLACE_BYTES,
};

static inline uint64_t write_place(uint64_t number)
{
	return (number * WRITE_STEP % WRITE_PLACES) * WRITE_PLACE_BYTES;
}

struct buffer {
	uint8_t *data; /* page-aligned */
	uint64_t bytes;
};

/* Maps it; with data of a kind (data_fill.h), or touched only as it is used where data_percent is 0. */
int buffer_map(struct buffer *buffer, uint64_t bytes, unsigned int data_percent);
void buffer_unmap(struct buffer *buffer);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns a size into memory for requests of that size. A large buffer is one small piece of memory mapped again and
 * again: requests stay one system call, and a trace with 1 GiB requests does not need 1 GiB per thread.
 */
#ifndef FLEXTRACE_BUFFER_H
#define FLEXTRACE_BUFFER_H

#include <stdint.h>

enum { BUFFER_WINDOW_BYTES = 8 << 20 };

struct buffer {
	uint8_t *data; /* page-aligned */
	uint64_t bytes;
};

/* Maps it; pseudo-random data when seed is not 0, else it is touched only as it is used. */
int buffer_map(struct buffer *buffer, uint64_t bytes, uint64_t seed);
void buffer_unmap(struct buffer *buffer);

#endif

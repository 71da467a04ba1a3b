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
 * All writes take their data from one buffer, one behind the other, so that what is written within 128 KiB, the most that a
 * file system compresses at once (btrfs), holds no page twice. A program has just made what it writes, so all of that lies in
 * a processor's second-level cache; but what it shares with others they have made, and those writes go over more than that
 * cache holds (docs/decisions/0010).
 */
enum {
	WRITE_PLACES = 32, /* powers of two */
	WRITE_PLACES_SHARED = 4096,
	WRITE_STEP = 96, /* 0 of 32 places; of many, with the pages of a write, further than a processor reads ahead */
	WRITE_PLACE_BYTES = 4096,
};

static inline uint64_t write_place(uint64_t number, uint64_t bytes, uint32_t places)
{
	uint64_t step = WRITE_STEP + (bytes + WRITE_PLACE_BYTES - 1) / WRITE_PLACE_BYTES;
	return (number * step & (places - 1)) * WRITE_PLACE_BYTES;
}

/*
 * Reads of a run with times go from one page to another, too, over more than the second-level cache of most
 * processors holds: an application seldom reads to where it has just read, and what it computed has passed through
 * that cache meanwhile (docs/decisions/0010).
 */
enum {
	READ_PLACES = 1024, /* at most; a power of two */
	READ_STEP = 97,
	READ_PLACE_BYTES = 4096,
	READ_SLACK_BYTES_MAX = 32 << 20, /* of all threads: a confined run has that much less for its page cache */
};

/* `places` is a power of two. */
static inline uint64_t read_place(uint64_t number, uint32_t places)
{
	return (number * READ_STEP & (places - 1)) * READ_PLACE_BYTES;
}

struct buffer {
	uint8_t *data; /* page-aligned */
	uint64_t bytes;
};

/* Maps it; with data of a kind (data_fill.h), or touched only as it is used where data_percent is 0. */
int buffer_map(struct buffer *buffer, uint64_t bytes, unsigned int data_percent);
/* The same of memory that other processes could share, of which nothing is there yet. */
int buffer_map_shared(struct buffer *buffer, uint64_t bytes);
void buffer_unmap(struct buffer *buffer);

#endif

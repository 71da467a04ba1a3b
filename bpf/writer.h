/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FLEXTRACE_WRITER_H
#define FLEXTRACE_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trace_format.h"

enum {
	WRITER_BUFFER_BYTES = 1 << 20, /* one write; begins at a multiple of this in the file */
	WRITER_BEHIND_BYTES = 8 << 20, /* how far dropping from the page cache is behind writing */
};

struct writer {
	int descriptor;
	uint8_t *buffer;
	size_t buffered_bytes;
	uint64_t flushed_ns; /* the last time */
	uint64_t dropped_until; /* in the file: written back and out of the page cache */
	uint64_t records_max; /* after this many only GAP records are taken, 0 = no limit */
	bool full; /* a record was not taken because of records_max */
	char *place, *beside; /* an earlier file, and the new one until writer_begin(); NULL = there is none */
	bool in_place; /* no regular file, or one that cannot be replaced: nothing is written until writer_begin() */
	struct trace_header header;
	int error; /* first negative errno of a failed write; later records are not written */
	/* Records whose offset still has to be resolved, see shared_offset.h. */
	uint64_t *inferred;
	size_t inferred_count;
	size_t inferred_room;
	size_t given_up; /* offsets that stay as they are: they are too many, or took too long */
	int stop; /* descriptor; what can be read there gives up all that are left */
};

/*
 * Makes the file, with an INCOMPLETE header that carries the JSON block so far. -EEXIST if it exists and force is not
 * given, else another negative errno. With force a file that exists stays as it is.
 */
int writer_init(struct writer *writer, const char *path, bool force, const char *json);
/* Recording has begun: now the file takes the place of the one that was there. */
void writer_begin(struct writer *writer);
/* Recording has not begun: removes the file, and leaves one that was there before. */
void writer_abandon(struct writer *writer, const char *path);
/* The times between which the target ran; elapsed time and throughput are made from them. */
void writer_mark_start(struct writer *writer);
void writer_mark_end(struct writer *writer);
/* Of a trace that was full before the target ended: moves the end to that of its last record, if it lies in between. */
void writer_cut_end(struct writer *writer, uint64_t end_ns);
/* Appends one record of TRACE_RECORD_BYTES. */
void writer_append(struct writer *writer, const void *record);
/* Appends a FILE record and its path, both or neither. */
void writer_append_file(struct writer *writer, struct file_record *record, const char *path, size_t path_bytes);
void writer_flush(struct writer *writer);
/* To be called all the time: flushes what has waited for a second, so that little is missing if the recorder is killed. */
void writer_flush_old(struct writer *writer);
/*
 * Keeps the file below so many bytes, writer_limit_min() or more, with a short JSON block and end_bytes of what else is told
 * at its end: in that block, and in GAP records.
 */
uint64_t writer_limit_min(uint64_t end_bytes);
void writer_limit(struct writer *writer, uint64_t bytes_max, uint64_t end_bytes);
/*
 * Writes the final header and JSON block and closes; the first error of all writes. After an error the trace stays
 * INCOMPLETE.
 */
int writer_deinit(struct writer *writer, const char *json);

#endif /* FLEXTRACE_WRITER_H */

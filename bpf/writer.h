/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FLEXTRACE_WRITER_H
#define FLEXTRACE_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trace_format.h"

enum { WRITER_BUFFER_BYTES = 1 << 20 };

struct writer {
	int descriptor;
	uint8_t *buffer;
	size_t buffered_bytes;
	struct trace_header header;
	int error; /* first negative errno of a failed write; later records are not written */
	/* Records whose offset still has to be resolved, see shared_offset.h. */
	uint64_t *inferred;
	size_t inferred_count;
	size_t inferred_room;
};

/*
 * Makes the file, with an INCOMPLETE header that carries the JSON block so far. -EEXIST if it exists and force is not
 * given, else another negative errno.
 */
int writer_init(struct writer *writer, const char *path, bool force, const char *json);
/* The times between which the target ran; elapsed time and throughput are made from them. */
void writer_mark_start(struct writer *writer);
void writer_mark_end(struct writer *writer);
/* Appends one record of TRACE_RECORD_BYTES. */
void writer_append(struct writer *writer, const void *record);
/* Appends a FILE record and its path. */
void writer_append_file(struct writer *writer, struct file_record *record, const char *path, size_t path_bytes);
void writer_flush(struct writer *writer);
/* Writes the final header and JSON block and closes; the first error of all writes. */
int writer_deinit(struct writer *writer, const char *json);

#endif /* FLEXTRACE_WRITER_H */

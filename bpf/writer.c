// SPDX-License-Identifier: Apache-2.0
/*
 * Turns records into a trace file: few, large, sequential writes; a header that is true only after a clean close.
 */
#include "writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "shared_offset.h"

enum { INFERRED_MAX = 1 << 24 };

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec now;
	clock_gettime(clock, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static int write_all(int descriptor, const void *data, size_t bytes, off_t offset)
{
	for (size_t done = 0; done < bytes;) {
		ssize_t written = pwrite(descriptor, (const char *)data + done, bytes - done, offset + done);
		if (written < 0 && errno != EINTR)
			return -errno;
		if (written > 0)
			done += written;
	}
	return 0;
}

static off_t records_end(const struct writer *writer)
{
	return TRACE_HEADER_BYTES + (off_t)writer->header.record_count * TRACE_RECORD_BYTES;
}

/* Puts the JSON block into the header, or behind the records if it is too large for that. */
static int place_json(struct writer *writer, const char *json)
{
	struct trace_header *header = &writer->header;
	size_t bytes = strlen(json);
	memset(header->json, 0, sizeof(header->json));
	header->json_bytes = bytes;
	if (bytes <= TRACE_JSON_BYTES_MAX) {
		header->json_offset = offsetof(struct trace_header, json);
		memcpy(header->json, json, bytes);
		return 0;
	}
	header->json_offset = records_end(writer);
	return write_all(writer->descriptor, json, bytes, header->json_offset);
}

void writer_mark_start(struct writer *writer)
{
	writer->header.start_monotonic_ns = clock_ns(CLOCK_MONOTONIC);
	writer->header.start_realtime_ns = clock_ns(CLOCK_REALTIME);
	writer_mark_end(writer);
}

void writer_mark_end(struct writer *writer)
{
	writer->header.end_monotonic_ns = clock_ns(CLOCK_MONOTONIC);
	writer->header.end_realtime_ns = clock_ns(CLOCK_REALTIME);
}

int writer_init(struct writer *writer, const char *path, bool force, const char *json)
{
	*writer = (struct writer){.descriptor = -1};
	writer->buffer = aligned_alloc(4096, WRITER_BUFFER_BYTES);
	if (!writer->buffer)
		return -ENOMEM;
	writer->descriptor = open(path, O_RDWR | O_CREAT | O_CLOEXEC | (force ? O_TRUNC : O_EXCL), 0644);
	if (writer->descriptor < 0) {
		int error = -errno;
		free(writer->buffer);
		return error;
	}
	struct trace_header *header = &writer->header;
	memcpy(header->magic, TRACE_MAGIC, sizeof(header->magic));
	header->version_major = TRACE_VERSION_MAJOR;
	header->version_minor = TRACE_VERSION_MINOR;
	header->header_bytes = TRACE_HEADER_BYTES;
	header->record_bytes = TRACE_RECORD_BYTES;
	header->flags = TRACE_INCOMPLETE;
	writer_mark_start(writer);
	/* An INCOMPLETE file has no end to put a long JSON block behind. */
	int error = place_json(writer, strlen(json) <= TRACE_JSON_BYTES_MAX ? json : "{}");
	if (!error)
		error = write_all(writer->descriptor, header, sizeof(*header), 0);
	if (error) {
		close(writer->descriptor);
		unlink(path);
		free(writer->buffer);
	}
	return error;
}

void writer_flush(struct writer *writer)
{
	if (!writer->error && writer->buffered_bytes) {
		off_t offset = records_end(writer) - writer->buffered_bytes;
		writer->error = write_all(writer->descriptor, writer->buffer, writer->buffered_bytes, offset);
	}
	writer->buffered_bytes = 0;
}

static void note_inferred(struct writer *writer)
{
	if (writer->inferred_count == writer->inferred_room && writer->inferred_room < INFERRED_MAX) {
		size_t room = writer->inferred_room ? writer->inferred_room * 2 : 1024;
		uint64_t *grown = realloc(writer->inferred, room * sizeof(*grown));
		if (!grown)
			return;
		writer->inferred = grown;
		writer->inferred_room = room;
	}
	if (writer->inferred_count < writer->inferred_room)
		writer->inferred[writer->inferred_count++] = writer->header.record_count;
}

void writer_append(struct writer *writer, const void *record)
{
	if (writer->error)
		return;
	const struct io_record *io = record;
	if (io->kind == RECORD_IO && (io->flags & IO_OFFSET_INFERRED))
		note_inferred(writer);
	memcpy(writer->buffer + writer->buffered_bytes, record, TRACE_RECORD_BYTES);
	writer->buffered_bytes += TRACE_RECORD_BYTES;
	writer->header.record_count++;
	writer->header.count[io->kind]++;
	if (writer->buffered_bytes == WRITER_BUFFER_BYTES)
		writer_flush(writer);
}

void writer_append_file(struct writer *writer, struct file_record *record, const char *path, size_t path_bytes)
{
	record->path_bytes = path_bytes;
	writer_append(writer, record);
	for (size_t done = 0, index = 0; done < path_bytes; done += TRACE_TEXT_BYTES, index++) {
		size_t bytes = path_bytes - done < TRACE_TEXT_BYTES ? path_bytes - done : TRACE_TEXT_BYTES;
		struct text_record text = {
			.kind = RECORD_TEXT, .bytes = bytes, .index = index, .reference = record->file};
		memcpy(text.text, path + done, bytes);
		writer_append(writer, &text);
	}
}

int writer_deinit(struct writer *writer, const char *json)
{
	struct trace_header *header = &writer->header;
	writer_flush(writer);
	if (!writer->error && writer->inferred_count)
		writer->error = shared_offset_resolve(writer->descriptor, header->record_count, writer->inferred,
						      writer->inferred_count);
	if (!writer->error) {
		header->flags &= ~TRACE_INCOMPLETE;
		for (int kind = 0; kind < TRACE_KINDS_MAX; kind++)
			if (header->lost[kind])
				header->flags |= TRACE_LOST;
		writer->error = place_json(writer, json);
	}
	if (!writer->error)
		writer->error = write_all(writer->descriptor, header, sizeof(*header), 0);
	if (close(writer->descriptor) && !writer->error)
		writer->error = -errno;
	free(writer->buffer);
	free(writer->inferred);
	return writer->error;
}

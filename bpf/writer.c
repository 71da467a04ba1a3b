// SPDX-License-Identifier: Apache-2.0
/*
 * Turns records into a trace file: few, large, sequential writes; a header that is true only after a clean close.
 */
#include "writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"
#include "shared_offset.h"

enum {
	INFERRED_MAX = 1 << 24,
	JSON_RESERVED_BYTES = 64 << 10, /* without what end_bytes are for */
	LIMITED_RECORDS_MIN = 4096, /* a limit that leaves room for fewer is no use */
	FLUSH_NS = 1000000000,
};

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

void writer_cut_end(struct writer *writer, uint64_t end_ns)
{
	struct trace_header *header = &writer->header;
	if (end_ns < header->start_monotonic_ns || end_ns > header->end_monotonic_ns)
		return;
	header->end_realtime_ns -= header->end_monotonic_ns - end_ns;
	header->end_monotonic_ns = end_ns;
}

/*
 * Of a file that is there. Whoever reads that one, such as a replay, has it mapped: so it stays as it is, and another takes
 * its place when recording begins. What is no regular file, such as /dev/null, is written itself.
 */
static int open_instead(struct writer *writer, const char *path)
{
	struct stat status;
	/* Not O_CREAT, which root is refused in /tmp of another's file (fs.protected_regular). */
	int there = open(path, O_RDWR | O_CLOEXEC);
	if (there < 0)
		return -errno;
	if (fstat(there, &status) || !S_ISREG(status.st_mode)) {
		writer->in_place = true;
		return there;
	}
	close(there);
	writer->place = realpath(path, NULL); /* not the link that leads to it */
	const char *slash = writer->place ? strrchr(writer->place, '/') : NULL;
	if (!slash)
		return -errno;
	if (asprintf(&writer->beside, "%.*s/.flextrace-record.%d.unfinished", (int)(slash - writer->place),
		     writer->place, getpid()) < 0) {
		writer->beside = NULL;
		return -ENOMEM;
	}
	unlink(writer->beside); /* of a process of this number that was killed */
	int made = open(writer->beside, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (made < 0)
		return -errno;
	/* As readable as the one before. Who may not give files away has one of their own. */
	if (fchown(made, status.st_uid, status.st_gid) == 0 || status.st_uid == geteuid())
		fchmod(made, status.st_mode & 07777);
	return made;
}

static void forget_places(struct writer *writer)
{
	free(writer->place);
	free(writer->beside);
	writer->place = writer->beside = NULL;
}

int writer_init(struct writer *writer, const char *path, bool force, const char *json)
{
	*writer = (struct writer){.descriptor = -1, .stop = -1};
	writer->buffer = aligned_alloc(4096, WRITER_BUFFER_BYTES);
	if (!writer->buffer)
		return -ENOMEM;
	writer->descriptor = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (writer->descriptor < 0)
		writer->descriptor = errno == EEXIST && force ? open_instead(writer, path) : -errno;
	if (writer->descriptor < 0) {
		forget_places(writer);
		free(writer->buffer);
		return writer->descriptor;
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
	if (!error && !writer->in_place)
		error = write_all(writer->descriptor, header, sizeof(*header), 0);
	if (error) {
		close(writer->descriptor);
		writer_abandon(writer, path);
		free(writer->buffer);
	}
	return error;
}

/* What cannot be replaced, such as a file that is a mount point, is written itself. 0 or a negative errno. */
static int go_in_place(struct writer *writer)
{
	int there = open(writer->place, O_RDWR | O_TRUNC | O_CLOEXEC);
	if (there < 0)
		return -errno;
	close(writer->descriptor);
	unlink(writer->beside);
	writer->descriptor = there;
	writer->in_place = true;
	return 0;
}

void writer_begin(struct writer *writer)
{
	if (writer->beside && rename(writer->beside, writer->place))
		writer->error = go_in_place(writer);
	if (!writer->error && writer->in_place)
		writer->error = write_all(writer->descriptor, &writer->header, sizeof(writer->header), 0);
	if (writer->error && writer->beside)
		unlink(writer->beside);
	forget_places(writer);
}

void writer_abandon(struct writer *writer, const char *path)
{
	if (!writer->in_place)
		unlink(writer->beside ? writer->beside : path);
	forget_places(writer);
}

/*
 * Waits until a part, or all from there on (0 bytes), is on the disk. Errors other than those of the disk mean that the file
 * system cannot do that.
 */
static int wait_for_disk(const struct writer *writer, off_t offset, size_t bytes)
{
	unsigned int whole = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
	int error = sync_file_range(writer->descriptor, offset, bytes, whole) ? -errno : 0;
	return error == -EIO || error == -ENOSPC ? error : 0;
}

/*
 * What was written is sent to the disk at once, and a little later, when that has mostly happened, it is dropped: the
 * trace neither collects dirty memory nor takes the page cache from the machine that is measured.
 */
static int write_back(struct writer *writer, off_t offset, size_t bytes)
{
	sync_file_range(writer->descriptor, offset, bytes, SYNC_FILE_RANGE_WRITE);
	uint64_t end = offset + bytes;
	if (end - writer->dropped_until < WRITER_BEHIND_BYTES + WRITER_BUFFER_BYTES)
		return 0;
	uint64_t drop_bytes = end - WRITER_BEHIND_BYTES - writer->dropped_until;
	int error = wait_for_disk(writer, writer->dropped_until, drop_bytes);
	posix_fadvise(writer->descriptor, writer->dropped_until, drop_bytes, POSIX_FADV_DONTNEED);
	writer->dropped_until += drop_bytes;
	return error;
}

void writer_flush(struct writer *writer)
{
	off_t offset = records_end(writer) - writer->buffered_bytes;
	if (!writer->error && writer->buffered_bytes)
		writer->error = write_all(writer->descriptor, writer->buffer, writer->buffered_bytes, offset);
	if (!writer->error && writer->buffered_bytes)
		writer->error = write_back(writer, offset, writer->buffered_bytes);
	writer->buffered_bytes = 0;
	writer->flushed_ns = monotonic_ns();
}

void writer_flush_old(struct writer *writer)
{
	if (monotonic_ns() - writer->flushed_ns >= FLUSH_NS)
		writer_flush(writer);
}

/* False where it is not going to be worked out. */
static bool note_inferred(struct writer *writer)
{
	if (writer->inferred_count == writer->inferred_room && writer->inferred_room < INFERRED_MAX) {
		size_t room = writer->inferred_room ? writer->inferred_room * 2 : 1024;
		uint64_t *grown = realloc(writer->inferred, room * sizeof(*grown));
		if (!grown)
			return false;
		writer->inferred = grown;
		writer->inferred_room = room;
	}
	if (writer->inferred_count == writer->inferred_room)
		return false;
	writer->inferred[writer->inferred_count++] = writer->header.record_count;
	return true;
}

static void append(struct writer *writer, const void *record)
{
	struct io_record *io = (struct io_record *)(writer->buffer + writer->buffered_bytes);
	memcpy(io, record, TRACE_RECORD_BYTES);
	/* Nobody is going to make an offset of the width of its interval, which stands there: readers would count it. */
	if (io->kind == RECORD_IO && io->flags & IO_OFFSET_INFERRED && !note_inferred(writer)) {
		io->missed_bytes = TRACE_NOT_MEASURED_U32;
		writer->given_up++;
	}
	writer->buffered_bytes += TRACE_RECORD_BYTES;
	writer->header.record_count++;
	writer->header.count[io->kind]++;
	if (records_end(writer) % WRITER_BUFFER_BYTES == 0)
		writer_flush(writer);
}

/* Whether so many records more are taken. What comes after the first that is not taken is not taken either. */
static bool has_room(struct writer *writer, uint64_t count)
{
	if (writer->records_max && writer->header.record_count + count > writer->records_max)
		writer->full = true;
	return !writer->error && !writer->full;
}

void writer_append(struct writer *writer, const void *record)
{
	/* There is room set aside for the GAP records of the last round. */
	bool is_gap = *(const uint8_t *)record == RECORD_GAP;
	if (is_gap ? !writer->error : has_room(writer, 1))
		append(writer, record);
}

void writer_append_file(struct writer *writer, struct file_record *record, const char *path, size_t path_bytes)
{
	record->path_bytes = path_bytes;
	if (!has_room(writer, 1 + (path_bytes + TRACE_TEXT_BYTES - 1) / TRACE_TEXT_BYTES))
		return;
	append(writer, record);
	for (size_t done = 0, index = 0; done < path_bytes; done += TRACE_TEXT_BYTES, index++) {
		size_t bytes = path_bytes - done < TRACE_TEXT_BYTES ? path_bytes - done : TRACE_TEXT_BYTES;
		struct text_record text = {
			.kind = RECORD_TEXT, .bytes = bytes, .index = index, .reference = record->file};
		memcpy(text.text, path + done, bytes);
		append(writer, &text);
	}
}

static uint64_t reserved_bytes(uint64_t end_bytes)
{
	return TRACE_HEADER_BYTES + JSON_RESERVED_BYTES + end_bytes;
}

uint64_t writer_limit_min(uint64_t end_bytes)
{
	return reserved_bytes(end_bytes) + LIMITED_RECORDS_MIN * TRACE_RECORD_BYTES;
}

void writer_limit(struct writer *writer, uint64_t bytes_max, uint64_t end_bytes)
{
	writer->records_max = (bytes_max - reserved_bytes(end_bytes)) / TRACE_RECORD_BYTES;
}

int writer_deinit(struct writer *writer, const char *json)
{
	struct trace_header *header = &writer->header;
	writer_flush(writer);
	if (!writer->error && writer->inferred_count)
		writer->error = shared_offset_resolve(writer->descriptor, header->record_count, writer->inferred,
						      writer->inferred_count, writer->stop, &writer->given_up);
	if (!writer->error) {
		header->flags &= ~TRACE_INCOMPLETE;
		for (int kind = 0; kind < TRACE_KINDS_MAX; kind++)
			if (header->lost[kind])
				header->flags |= TRACE_LOST;
		writer->error = place_json(writer, json);
	}
	/* What fails there fails only now, and the header is to say so. */
	if (!writer->error)
		writer->error = wait_for_disk(writer, 0, 0);
	if (!writer->error)
		writer->error = write_all(writer->descriptor, header, sizeof(*header), 0);
	if (close(writer->descriptor) && !writer->error)
		writer->error = -errno;
	free(writer->buffer);
	free(writer->inferred);
	return writer->error;
}

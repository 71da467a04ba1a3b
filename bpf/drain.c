// SPDX-License-Identifier: Apache-2.0
/*
 * Turns the rings of all CPUs into one stream of records in the order of their ends.
 *
 * Every ring is in order, the rings among each other are not. A round takes all rings, sorts, and holds back whatever
 * ended after the round before began: such a record may still be overtaken by one from a ring that was read earlier in
 * this round.
 */
#include "drain.h"

#include <bpf/libbpf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
	PENDING_MAX = 1 << 24, /* records held in memory, 1.5 GiB; beyond that they are counted as lost */
	FILE_SEARCH_MAX = 4096, /* how far back the FILE of a name is looked for */
	NAME_IDS_FIRST = 0x80000000u, /* ids from the kernel side start at 1 */
};

static uint64_t monotonic_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static struct announced *announced_of(struct drain *drain, uint32_t thread)
{
	struct announced *slot = &drain->announced[thread % ANNOUNCED_MAX];
	if (slot->thread != thread) {
		free(slot->directory);
		free(slot->path);
		free(slot->new_path);
		*slot = (struct announced){.thread = thread};
	}
	return slot;
}

static void replace(char **slot, char *text)
{
	free(*slot);
	*slot = text;
}

static void take_name(struct drain *drain, const struct ring_name *name)
{
	if (name->start + name->bytes > (int)sizeof(name->text))
		return;
	char *text = strndup(name->text + name->start, name->bytes);
	if (!text) {
		drain->lost_here++;
		return;
	}
	struct announced *announced = announced_of(drain, name->thread);
	switch (name->role) {
	case NAME_OF_FILE:
		for (size_t i = 1; i <= drain->pending_count && i <= FILE_SEARCH_MAX; i++) {
			struct pending *pending = &drain->pending[drain->pending_count - i];
			if (pending->record.kind == RECORD_FILE && pending->record.file.file == name->file) {
				replace(&pending->path, text);
				return;
			}
		}
		free(text);
		break;
	case NAME_DIRECTORY:
	case NAME_NEW_DIRECTORY:
		replace(&announced->directory, text);
		break;
	case NAME_ARGUMENT:
	case NAME_NEW_ARGUMENT:
		replace(name->role == NAME_ARGUMENT ? &announced->path : &announced->new_path,
			names_join(announced->directory ? announced->directory : "/", text));
		free(text);
		break;
	default:
		free(text);
	}
}

static struct pending *add_pending(struct drain *drain)
{
	if (drain->pending_count == drain->pending_room) {
		size_t room = drain->pending_room ? drain->pending_room * 2 : 1 << 16;
		struct pending *grown = room <= PENDING_MAX ? realloc(drain->pending, room * sizeof(*grown)) : NULL;
		if (!grown)
			return NULL;
		drain->pending = grown;
		drain->pending_room = room;
	}
	struct pending *pending = &drain->pending[drain->pending_count++];
	*pending = (struct pending){.sequence = drain->sequence++};
	return pending;
}

static int take_event(void *context, void *data, size_t bytes)
{
	struct drain *drain = context;
	const uint8_t *kind = data;

	if (*kind == RING_NAME && bytes >= sizeof(struct ring_name)) {
		take_name(drain, data);
		return 0;
	}
	struct pending *pending = bytes >= TRACE_RECORD_BYTES ? add_pending(drain) : NULL;
	if (!pending) {
		drain->lost_here++;
		return 0;
	}
	memcpy(&pending->record, data, TRACE_RECORD_BYTES);
	switch (*kind) {
	case RECORD_FILE:
		pending->end_ns = pending->record.file.time_ns;
		break;
	case RECORD_TASK:
		pending->end_ns = pending->record.task.time_ns;
		break;
	default: /* all timed records have start and duration in the same place */
		pending->end_ns = pending->record.io.start_ns + pending->record.io.duration_ns;
	}
	if (*kind == RECORD_FILEOP &&
	    (pending->record.fileop.op == FILEOP_UNLINK || pending->record.fileop.op == FILEOP_RENAME)) {
		struct announced *announced = announced_of(drain, pending->record.fileop.thread);
		pending->path = announced->path;
		pending->new_path = announced->new_path;
		announced->path = announced->new_path = NULL;
	}
	return 0;
}

static int compare_pending(const void *a, const void *b)
{
	const struct pending *left = a, *right = b;
	if (left->end_ns != right->end_ns)
		return left->end_ns < right->end_ns ? -1 : 1;
	return left->sequence < right->sequence ? -1 : left->sequence > right->sequence;
}

/* A FILE record for a path that was never opened in this trace. */
static uint32_t write_name_only_file(struct drain *drain, const char *path, uint64_t time_ns, uint32_t flags)
{
	struct file_record record = {
		.kind = RECORD_FILE,
		.flags = flags,
		.time_ns = time_ns,
		.file = NAME_IDS_FIRST + drain->name_ids++,
		.resident_bytes = TRACE_NOT_MEASURED_U64,
	};
	writer_append_file(drain->writer, &record, path, strlen(path));
	return record.file;
}

static int write_name_operation(struct drain *drain, struct pending *pending)
{
	struct fileop_record *record = &pending->record.fileop;
	int error = 0;
	if (pending->path && *pending->path) {
		record->file = names_find(&drain->names, pending->path);
		if (!record->file && !record->result) {
			record->file = write_name_only_file(drain, pending->path, record->start_ns, 0);
			error = names_put(&drain->names, pending->path, record->file);
		}
		if (!record->result && pending->new_path && *pending->new_path) {
			record->argument =
				write_name_only_file(drain, pending->new_path, record->start_ns, FILE_NEW_NAME);
			error = names_put(&drain->names, pending->new_path, record->file);
		}
		if (!record->result)
			names_remove(&drain->names, pending->path);
	}
	writer_append(drain->writer, record);
	return error;
}

static int write_pending(struct drain *drain, struct pending *pending)
{
	int error = 0;
	if (pending->end_ns < drain->written_until_ns)
		drain->late_count++;
	else
		drain->written_until_ns = pending->end_ns;
	if (pending->record.kind == RECORD_FILE) {
		const char *path = pending->path ? pending->path : "";
		writer_append_file(drain->writer, &pending->record.file, path, strlen(path));
		if (*path)
			error = names_put(&drain->names, path, pending->record.file.file);
	} else if (pending->record.kind == RECORD_FILEOP && pending->path) {
		error = write_name_operation(drain, pending);
	} else {
		writer_append(drain->writer, &pending->record);
	}
	free(pending->path);
	free(pending->new_path);
	return error;
}

static int write_until(struct drain *drain, uint64_t end_ns)
{
	int error = 0;
	size_t written = 0;
	qsort(drain->pending, drain->pending_count, sizeof(*drain->pending), compare_pending);
	while (written < drain->pending_count && drain->pending[written].end_ns <= end_ns) {
		int result = write_pending(drain, &drain->pending[written++]);
		error = error ? error : result;
	}
	drain->pending_count -= written;
	memmove(drain->pending, drain->pending + written, drain->pending_count * sizeof(*drain->pending));
	return error ? error : drain->writer->error;
}

int drain_init(struct drain *drain, const int *rings, int ring_count, struct writer *writer)
{
	*drain = (struct drain){.writer = writer};
	names_init(&drain->names);
	for (int i = 0; i < ring_count; i++) {
		int error = 0;
		if (!drain->rings) {
			drain->rings = ring_buffer__new(rings[i], take_event, drain, NULL);
			error = drain->rings ? 0 : -errno;
		} else {
			error = ring_buffer__add(drain->rings, rings[i], take_event, drain);
		}
		if (error) {
			drain_deinit(drain);
			return error;
		}
	}
	return 0;
}

int drain_round(struct drain *drain)
{
	/* Everything that ended before a round began is in its ring by then, but for a program that was interrupted between
	 * reading the clock and submitting; the extra round gives those time. */
	uint64_t until_ns = drain->round_began_ns;
	drain->round_began_ns = monotonic_ns();
	int taken = ring_buffer__consume(drain->rings);
	if (taken < 0)
		return taken;
	return write_until(drain, until_ns);
}

int drain_finish(struct drain *drain)
{
	int taken = ring_buffer__consume(drain->rings);
	int error = write_until(drain, UINT64_MAX);
	return taken < 0 ? taken : error;
}

void drain_deinit(struct drain *drain)
{
	ring_buffer__free(drain->rings);
	for (size_t i = 0; i < drain->pending_count; i++) {
		free(drain->pending[i].path);
		free(drain->pending[i].new_path);
	}
	free(drain->pending);
	for (int i = 0; i < ANNOUNCED_MAX; i++) {
		free(drain->announced[i].directory);
		free(drain->announced[i].path);
		free(drain->announced[i].new_path);
	}
	names_deinit(&drain->names);
}

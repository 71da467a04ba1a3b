// SPDX-License-Identifier: Apache-2.0
/*
 * Turns the rings of all CPUs into one stream of records in the order of their ends.
 *
 * Every ring is in order, the rings among each other are not. A round takes all rings, sorts, and holds back whatever
 * ended after the round before began: such a record may still be overtaken by one from a ring that was read earlier in
 * this round. It holds back for longer, though, for the sake of programs that are interrupted between reading the clock
 * and submitting: the processor of a virtual machine may be taken away for some ten milliseconds.
 */
#include "drain.h"

#include <bpf/libbpf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"

enum {
	PENDING_MAX = 1 << 24, /* records held in memory, 1.5 GiB; beyond that they are counted as lost */
	HOLD_NS = 40000000, /* how long a record is waited for that others overtook */
	FILE_SEARCH_MAX = 1 << 20, /* how far back a name's FILE is looked for: HOLD_NS at 25 million a second */
};

static void forget_announced(struct announced *announced)
{
	free(announced->directory);
	free(announced->path);
	free(announced->new_path);
	*announced = (struct announced){};
}

/* What the call that a name belongs to has announced so far; what another has announced, whose record was lost, goes. */
static struct announced *announced_by(struct drained_ring *ring, const struct ring_name *name)
{
	struct announced *announced = &ring->announced;
	if (announced->thread != name->thread || announced->time_ns != name->time_ns)
		forget_announced(announced);
	announced->thread = name->thread;
	announced->time_ns = name->time_ns;
	announced->other_root = name->other_root;
	return announced;
}

static void replace(char **slot, char *text)
{
	free(*slot);
	*slot = text;
}

static void take_path_of_file(struct drain *drain, const struct ring_name *name, char *path)
{
	for (size_t i = 1; i <= drain->pending_end - drain->pending_begin && i <= FILE_SEARCH_MAX; i++) {
		struct pending *pending = &drain->pending[drain->pending_end - i];
		if (pending->record.kind == RECORD_FILE && pending->record.file.file == name->file) {
			replace(&pending->path, path);
			pending->viewer_process = name->process;
			drain->lookup_count += pending->record.file.size_bytes > 0;
			if (drain->meet)
				drain->meet(drain->observer, pending);
			return;
		}
	}
	free(path);
}

static void take_name(struct drained_ring *ring, const struct ring_name *name)
{
	struct drain *drain = ring->drain;
	if (name->start + name->bytes > (int)sizeof(name->text))
		return;
	char *text = strndup(name->text + name->start, name->bytes);
	if (name->role == NAME_OF_FILE) {
		if (text)
			take_path_of_file(drain, name, text);
		else
			drain->lost_here[RECORD_FILE]++;
		return;
	}
	struct announced *announced = announced_by(ring, name);
	drain->lookup_count++;
	if (!text) {
		announced->incomplete = true;
		return;
	}
	switch (name->role) {
	case NAME_DIRECTORY:
	case NAME_NEW_DIRECTORY:
		replace(&announced->directory, text);
		break;
	case NAME_ARGUMENT:
	case NAME_NEW_ARGUMENT: {
		char **slot = name->role == NAME_ARGUMENT ? &announced->path : &announced->new_path;
		const char *directory = announced->directory ? announced->directory : "/";
		/* The announced directory has no symbolic links, as paths of FILE records have none. */
		bool may_have_links = strchr(text, '/') && !name->other_root;
		/* Where the directory of a relative name found no room, or was none, the name is not known. */
		if (announced->directory || *text == '/')
			replace(slot,
				may_have_links ? names_join_resolved(directory, text) : names_join(directory, text));
		replace(&announced->directory, NULL);
		free(text);
		break;
	}
	default:
		free(text);
	}
}

/* What has been written leaves room; it is used when that moves fewer records than it frees. */
static void close_gap(struct drain *drain)
{
	size_t count = drain->pending_end - drain->pending_begin;
	if (!drain->pending_begin || count > drain->pending_begin)
		return;
	memcpy(drain->pending, drain->pending + drain->pending_begin, count * sizeof(*drain->pending));
	drain->pending_begin = 0;
	drain->pending_end = count;
}

static struct pending *add_pending(struct drain *drain)
{
	if (drain->pending_end == drain->pending_room) {
		size_t room = drain->pending_room ? drain->pending_room * 2 : 1 << 16;
		struct pending *grown = room <= PENDING_MAX ? realloc(drain->pending, room * sizeof(*grown)) : NULL;
		if (!grown)
			return NULL;
		drain->pending = grown;
		drain->pending_room = room;
	}
	struct pending *pending = &drain->pending[drain->pending_end++];
	*pending = (struct pending){.sequence = drain->sequence++};
	return pending;
}

/* When a record's turn is. */
static uint64_t end_ns_of(const struct pending *pending)
{
	const struct block_record *block = &pending->record.block;
	switch (pending->record.kind) {
	case RECORD_FILE:
		return pending->record.file.time_ns;
	case RECORD_TASK:
		return pending->record.task.time_ns;
	case RECORD_BLOCK:
		if (block->flags & BLOCK_END_UNSEEN)
			return monotonic_ns(); /* found out later */
		return block->start_ns + block->duration_ns;
	default: /* all others have start and duration where an IO record has them */
		return pending->record.io.start_ns + pending->record.io.duration_ns;
	}
}

/*
 * A call on names takes the names that were announced at its very end; those of a call whose record was lost stay behind.
 * false if one of its names was lost here.
 */
static bool take_announced(struct announced *announced, struct pending *pending)
{
	if (announced->thread != pending->record.fileop.thread || announced->time_ns != pending->end_ns)
		return true;
	if (announced->incomplete)
		return false;
	pending->path = announced->path;
	pending->new_path = announced->new_path;
	pending->other_root = announced->other_root;
	announced->path = announced->new_path = NULL;
	return true;
}

/* An event is one record, or several that end together. */
static int take_event(void *context, void *data, size_t bytes)
{
	struct drained_ring *ring = context;
	struct drain *drain = ring->drain;
	const uint8_t *kind = data;

	drain->event_count++;
	drain->event_bytes += bytes;
	if (*kind == RING_NAME && bytes >= sizeof(struct ring_name)) {
		take_name(ring, data);
		return 0;
	}
	uint64_t end_ns = 0;
	for (size_t at = 0; at + TRACE_RECORD_BYTES <= bytes; at += TRACE_RECORD_BYTES) {
		struct pending *pending = add_pending(drain);
		if (!pending) {
			drain->lost_here[kind[at] % TRACE_KINDS_MAX]++;
			continue;
		}
		memcpy(&pending->record, &kind[at], TRACE_RECORD_BYTES);
		if (at == 0)
			end_ns = end_ns_of(pending);
		pending->end_ns = end_ns;
		if (pending->record.kind == RECORD_FILEOP && !take_announced(&ring->announced, pending)) {
			drain->pending_end--;
			drain->lost_here[RECORD_FILEOP]++;
		}
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
static uint32_t write_name_only_file(struct drain *drain, const char *path, uint64_t time_ns, enum file_type type,
				     uint32_t flags)
{
	struct file_record record = {
		.kind = RECORD_FILE,
		.type = type,
		.flags = flags,
		.time_ns = time_ns,
		.file = TRACE_FIRST_NAME_ID + drain->name_ids++,
		.resident_bytes = TRACE_NOT_MEASURED_U64,
	};
	writer_append_file(drain->writer, &record, path, strlen(path));
	return record.file;
}

/* Of a call on names that takes one from a file which may have others. */
static bool takes_name(uint8_t op)
{
	return op == FILEOP_RENAME || op == FILEOP_UNLINK;
}

/* The file that the call names; one that was never seen is only entered if the call has found it. */
static int enter_existing_name(struct drain *drain, const char *path, struct fileop_record *record)
{
	struct named named = names_find(&drain->names, path);
	int error = 0;
	if (!named.file && !record->result) {
		enum file_type type = record->op == FILEOP_RMDIR ? FILE_TYPE_DIRECTORY : FILE_TYPE_UNKNOWN;
		named.file = named.carrier = write_name_only_file(drain, path, record->start_ns, type, 0);
		error = names_put(&drain->names, path, named);
	}
	record->file = named.file;
	if (drain->has_links && takes_name(record->op))
		record->length |= (uint64_t)named.carrier << FILEOP_NAME_SHIFT;
	return error;
}

/* A rename of a name to itself, or to another one of the same file: the kernel does nothing, and both stay. */
static bool changes_nothing(const struct fileop_record *record, const char *old_path, const char *path,
			    uint32_t replaced)
{
	return record->op == FILEOP_RENAME && old_path &&
	       (!strcmp(path, old_path) || (replaced && replaced == record->file));
}

/* The name that the call has made, and whose name it is from now on. */
static int enter_new_name(struct drain *drain, const char *path, const char *old_path, struct fileop_record *record)
{
	if (record->op == FILEOP_MKDIR) {
		record->file = write_name_only_file(drain, path, record->start_ns, FILE_TYPE_DIRECTORY, FILE_CREATED);
		return names_put(&drain->names, path, (struct named){record->file, record->file});
	}
	uint32_t replaced = names_find(&drain->names, path).file;
	uint32_t name = write_name_only_file(drain, path, record->start_ns, FILE_TYPE_UNKNOWN, FILE_NEW_NAME);
	record->argument = name;
	drain->has_links |= record->op == FILEOP_LINK;
	if (record->op == FILEOP_SYMLINK || changes_nothing(record, old_path, path, replaced))
		return 0;
	if (record->op == FILEOP_RENAME && old_path)
		return names_rename(&drain->names, old_path, path, name, record->length & RENAME_EXCHANGE);
	return names_put(&drain->names, path, (struct named){record->file, name});
}

static bool is_below(const char *path, const char *prefix)
{
	size_t bytes = strlen(prefix);
	return !strncmp(path, prefix, bytes) && (!path[bytes] || path[bytes] == '/');
}

/* What stands before no call, as the record of that was lost, is lost, too. */
static void lose_wake(struct drain *drain)
{
	drain->lost_here[RECORD_WAKE] += drain->wake.kind != 0;
	drain->wake.kind = 0;
}

/* A call, behind what is to stand right before it. */
static void write_call(struct drain *drain, const struct pending *pending)
{
	if (drain->wake.kind && drain->wake.id == pending->record.io.id) {
		writer_append(drain->writer, &drain->wake);
		drain->wake.kind = 0;
	}
	lose_wake(drain);
	writer_append(drain->writer, &pending->record);
}

/* Whether the user's filters keep what is done with this name: of a file that is recorded, or where such files lie. */
static bool is_wanted(struct drain *drain, const struct pending *pending, const char *path)
{
	if (!path || names_find(&drain->names, path).file)
		return path;
	if (drain->path_prefix && !is_below(path, drain->path_prefix))
		return false;
	/* Where the paths of another root lie cannot be said. */
	return !drain->device_filter || pending->other_root || device_filter_has(drain->device_filter, path);
}

static int write_name_operation(struct drain *drain, struct pending *pending)
{
	struct fileop_record *record = &pending->record.fileop;
	const char *path = pending->path && *pending->path ? pending->path : NULL;
	const char *new_path = pending->new_path && *pending->new_path ? pending->new_path : NULL;
	bool may_be_left_out = drain->path_prefix || drain->device_filter;
	if (may_be_left_out && !is_wanted(drain, pending, path) && !is_wanted(drain, pending, new_path)) {
		drain->filtered_count++;
		drain->wake.kind = 0;
		return 0;
	}
	int error = path ? enter_existing_name(drain, path, record) : 0;

	if (!record->result) {
		if (new_path && !error)
			error = enter_new_name(drain, new_path, path, record);
		else if (path && (record->op == FILEOP_UNLINK || record->op == FILEOP_RMDIR))
			names_remove(&drain->names, path);
	}
	write_call(drain, pending);
	return error;
}

static int write_pending(struct drain *drain, struct pending *pending)
{
	int error = 0;
	if (drain->observe)
		drain->observe(drain->observer, pending);
	if (pending->record.kind == RECORD_BLOCK && pending->record.block.flags & BLOCK_END_UNSEEN)
		drain->ends_unseen++;
	if (pending->record.kind == RECORD_FILE) {
		const char *path = pending->path ? pending->path : "";
		writer_append_file(drain->writer, &pending->record.file, path, strlen(path));
		uint32_t file = pending->record.file.file;
		if (*path)
			error = names_put(&drain->names, path, (struct named){file, file});
	} else if (pending->record.kind == RECORD_FILEOP && (pending->path || pending->new_path)) {
		error = write_name_operation(drain, pending);
	} else if (pending->record.kind == RECORD_WAKE) {
		lose_wake(drain);
		drain->wake = pending->record.wake;
	} else if (pending->record.kind == RECORD_IO || pending->record.kind == RECORD_FILEOP) {
		write_call(drain, pending);
	} else {
		writer_append(drain->writer, &pending->record);
	}
	/* What came after the trace was full is not in the file. */
	if (!drain->writer->full) {
		if (pending->end_ns < drain->written_until_ns)
			drain->late_count++;
		else
			drain->written_until_ns = pending->end_ns;
	}
	free(pending->path);
	free(pending->new_path);
	return error;
}

/* Those from `arrived` on are new; the ones before, which are in order, mostly ended before any of them. */
static void sort_pending(struct drain *drain, size_t arrived)
{
	struct pending *end = drain->pending + drain->pending_end, *fresh = drain->pending + arrived, *first = fresh;
	const struct pending *earliest = fresh;
	for (const struct pending *each = fresh; each < end; each++)
		if (compare_pending(each, earliest) < 0)
			earliest = each;
	while (fresh < end && first > drain->pending + drain->pending_begin && compare_pending(first - 1, earliest) > 0)
		first--;
	qsort(first, end - first, sizeof(*first), compare_pending);
}

static int write_until(struct drain *drain, uint64_t end_ns)
{
	int error = 0;
	while (drain->pending_begin < drain->pending_end && drain->pending[drain->pending_begin].end_ns <= end_ns) {
		int result = write_pending(drain, &drain->pending[drain->pending_begin++]);
		error = error ? error : result;
	}
	close_gap(drain);
	return error ? error : drain->writer->error;
}

/* Takes all that the rings hold. How many events, or a negative errno. */
static int take_rings(struct drain *drain)
{
	size_t arrived = drain->pending_end;
	int taken = ring_buffer__consume(drain->rings);
	sort_pending(drain, arrived);
	return taken;
}

int drain_init(struct drain *drain, const int *rings, int ring_count, struct writer *writer)
{
	*drain = (struct drain){.writer = writer, .ring_of_cpu = calloc(ring_count, sizeof(*drain->ring_of_cpu))};
	if (!drain->ring_of_cpu)
		return -ENOMEM;
	drain->ring_count = ring_count;
	names_init(&drain->names);
	for (int i = 0; i < ring_count; i++) {
		int error = 0;
		struct drained_ring *ring = &drain->ring_of_cpu[i];
		ring->drain = drain;
		if (!drain->rings) {
			drain->rings = ring_buffer__new(rings[i], take_event, ring, NULL);
			error = drain->rings ? 0 : -errno;
		} else {
			error = ring_buffer__add(drain->rings, rings[i], take_event, ring);
		}
		if (error) {
			drain_deinit(drain);
			return error;
		}
	}
	return 0;
}

int drain_descriptor(const struct drain *drain)
{
	return ring_buffer__epoll_fd(drain->rings);
}

int drain_take(struct drain *drain)
{
	int taken = take_rings(drain);
	return taken < 0 ? taken : 0;
}

int drain_round(struct drain *drain)
{
	uint64_t before_ns = drain->round_began_ns;
	drain->round_began_ns = monotonic_ns();
	int taken = take_rings(drain);
	if (taken < 0)
		return taken;
	uint64_t held_ns = drain->round_began_ns - HOLD_NS;
	drain->passed_ns = held_ns < before_ns ? held_ns : before_ns;
	return write_until(drain, drain->passed_ns);
}

int drain_finish(struct drain *drain)
{
	int taken = take_rings(drain);
	int error = write_until(drain, UINT64_MAX);
	lose_wake(drain);
	return taken < 0 ? taken : error;
}

void drain_deinit(struct drain *drain)
{
	ring_buffer__free(drain->rings);
	for (size_t i = drain->pending_begin; i < drain->pending_end; i++) {
		free(drain->pending[i].path);
		free(drain->pending[i].new_path);
	}
	free(drain->pending);
	for (int i = 0; i < drain->ring_count; i++)
		forget_announced(&drain->ring_of_cpu[i].announced);
	free(drain->ring_of_cpu);
	names_deinit(&drain->names);
}

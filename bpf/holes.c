// SPDX-License-Identifier: Apache-2.0
/*
 * Turns a file that had holes when it was first seen into HOLE records.
 *
 * A thread looks for them, as lseek waits for the lock that writes to a file hold, and the rings fill meanwhile. It looks
 * some ms after first sight, so two things may have happened since. A hole was filled: then it is not found, and a
 * replay has data there. Or a hole was made where data was, which must not be noted: so what is found is held until all
 * operations are known that had begun when the thread was through, and dropped if one of them may have done that. What
 * nobody records is not known: of a program that is not traced, MADV_REMOVE, a clone, what was lost, and an operation whose
 * effect comes more than SETTLE_NS before its end.
 */
#include "holes.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cleanup.h"
#include "clock.h"
#include "json.h"

#define SETTLE_NS 1000000000ull /* how long an operation is waited for that was running */
#define FINISH_NS 10000000000ull /* how long a file is waited for at the end that somebody has locked */

_Static_assert(!(HOLED_FILES_MAX & (HOLED_FILES_MAX - 1)), "the ring goes on where its numbers do");

static struct holed_file *slot_of(const struct holes *holes, uint32_t number)
{
	return &holes->files[number % HOLED_FILES_MAX];
}

/* ---- the thread that looks ---- */

static int compare_by_size(const void *left, const void *right)
{
	const struct hole *a = left, *b = right;
	uint64_t a_bytes = a->end - a->offset, b_bytes = b->end - b->offset;

	return a_bytes > b_bytes ? -1 : a_bytes < b_bytes;
}

static int compare_by_offset(const void *left, const void *right)
{
	const struct hole *a = left, *b = right;

	return a->offset < b->offset ? -1 : a->offset > b->offset;
}

/* All of them up to a size, as far as there is room. How many. */
static uint32_t find_holes(int descriptor, uint64_t size_bytes, struct hole *found, bool *cut)
{
	uint32_t count = 0;
	uint64_t at = 0;
	for (uint32_t looks = 0; at < size_bytes; looks++) {
		off_t hole = lseek(descriptor, (off_t)at, SEEK_HOLE);
		if (hole < 0 || (uint64_t)hole >= size_bytes)
			break;
		off_t data = lseek(descriptor, hole, SEEK_DATA);
		if (looks == HOLES_FOUND_MAX || (data < 0 && errno != ENXIO)) {
			*cut = true;
			break;
		}
		/* ENXIO: none up to the end. Somebody may have filled the hole by now. */
		at = data < 0 || (uint64_t)data > size_bytes ? size_bytes : (uint64_t)data;
		if (at > (uint64_t)hole)
			found[count++] = (struct hole){(uint64_t)hole, at};
	}
	return count;
}

static void keep_holes(struct holed_file *file, struct hole *found, uint32_t count)
{
	if (count > HOLES_OF_FILE_MAX) {
		file->cut = true;
		qsort(found, count, sizeof(*found), compare_by_size);
		count = HOLES_OF_FILE_MAX;
		qsort(found, count, sizeof(*found), compare_by_offset);
	}
	file->holes = count ? malloc(count * sizeof(*found)) : NULL;
	if (file->holes) {
		memcpy(file->holes, found, count * sizeof(*found));
		file->count = count;
	}
	file->cut |= count && !file->holes;
}

static void look_at(struct holed_file *file, struct hole *found)
{
	struct statx now;
	if (seen_file_ask(&file->seen, &now) || now.stx_blocks * 512 >= now.stx_size)
		return;
	_cleanup_close_ int descriptor = seen_file_open(&file->seen);
	if (descriptor < 0) {
		file->cut = true;
		return;
	}
	uint64_t size_bytes = file->seen.record.size_bytes;
	uint32_t count = find_holes(descriptor, size_bytes, found, &file->cut);
	/* If it was cut off since, what lies behind its end says nothing. */
	if (seen_file_ask_open(descriptor, &now) || now.stx_size < size_bytes)
		file->cut = true;
	else
		keep_holes(file, found, count);
}

static void *look_at_files(void *argument)
{
	struct holes *holes = argument;
	for (;;) {
		while (sem_wait(&holes->wanted) && errno == EINTR)
			;
		if (atomic_load(&holes->stop))
			return NULL;
		struct holed_file *file = slot_of(holes, atomic_load(&holes->looked));
		look_at(file, holes->found);
		file->looked_ns = monotonic_ns();
		atomic_fetch_add(&holes->looked, 1);
	}
}

/* ---- the recorder's own thread ---- */

int holes_init(struct holes *holes)
{
	*holes = (struct holes){
		.files = calloc(HOLED_FILES_MAX, sizeof(*holes->files)),
		.held = calloc(HOLED_FILES_MAX, sizeof(*holes->held)),
		.found = calloc(HOLES_FOUND_MAX, sizeof(*holes->found)),
	};
	int error = holes->files && holes->held && holes->found ? 0 : -ENOMEM;
	if (!error)
		sem_init(&holes->wanted, 0, 0);
	if (!error)
		error = -pthread_create(&holes->looker, NULL, look_at_files, holes);
	if (error) {
		free(holes->files);
		free(holes->held);
		free(holes->found);
		holes->files = NULL;
	}
	return error;
}

void holes_note(struct holes *holes, const struct file_record *record, const char *path, pid_t viewer)
{
	if (!seen_file_can_be_asked(record) || record->flags & (FILE_CREATED | FILE_NEW_NAME) || !record->size_bytes ||
	    !path)
		return;
	char *copy = holes->noted - holes->taken < HOLED_FILES_MAX ? strdup(path) : NULL;
	if (!copy) {
		holes->unseen_count++;
		return;
	}
	*slot_of(holes, holes->noted++) = (struct holed_file){
		.seen = {.record = *record, .path = copy, .viewer = viewer},
		.changed_ns = UINT64_MAX,
	};
	sem_post(&holes->wanted);
}

/* What had ended at first sight has made no other hole since. */
static void doubt(struct holed_file *file, uint32_t id, uint64_t start_ns, uint64_t end_ns)
{
	bool may_be_it = !id || file->seen.record.file == id;
	if (may_be_it && end_ns >= file->seen.record.time_ns && start_ns < file->changed_ns)
		file->changed_ns = start_ns;
}

void holes_doubt(struct holes *holes, uint32_t file, uint64_t start_ns, uint64_t end_ns)
{
	for (uint32_t i = holes->taken; i != holes->noted; i++)
		doubt(slot_of(holes, i), file, start_ns, end_ns);
	for (uint32_t i = 0; i < holes->held_count; i++)
		doubt(&holes->held[i], file, start_ns, end_ns);
}

static void forget(struct holes *holes, struct holed_file *file)
{
	holes->cut_count += file->cut;
	free(file->holes);
	free(file->seen.path);
}

/* Takes the files that were looked at; most have no holes. */
static void take_looked(struct holes *holes)
{
	for (uint32_t looked = atomic_load(&holes->looked); holes->taken != looked; holes->taken++) {
		struct holed_file *file = slot_of(holes, holes->taken);
		bool has_room = holes->held_count < HOLED_FILES_MAX &&
				holes->hole_count + holes->holes_held + file->count <= HOLES_MAX;
		if (file->count && has_room) {
			holes->held[holes->held_count++] = *file;
			holes->holes_held += file->count;
		} else {
			file->cut |= file->count > 0;
			forget(holes, file);
		}
	}
}

static void write_holes(struct holes *holes, struct holed_file *file, struct writer *writer)
{
	bool right = file->changed_ns > file->looked_ns;
	for (uint32_t i = 0; right && i < file->count; i++) {
		const struct hole *hole = &file->holes[i];
		struct hole_record record = {
			.kind = RECORD_HOLE,
			.file = file->seen.record.file,
			.time_ns = file->seen.record.time_ns,
			.offset = hole->offset,
			.bytes = hole->end - hole->offset,
		};
		writer_append(writer, &record);
		if (writer->full)
			break;
		holes->file_count += i == 0;
		holes->hole_count++;
		holes->hole_bytes += record.bytes;
	}
	file->cut |= !right || writer->full;
	holes->holes_held -= file->count;
	forget(holes, file);
}

void holes_round(struct holes *holes, struct writer *writer, uint64_t passed_ns)
{
	uint32_t kept = 0;
	take_looked(holes);
	for (uint32_t i = 0; i < holes->held_count; i++) {
		struct holed_file *file = &holes->held[i];
		if (file->looked_ns + SETTLE_NS <= passed_ns)
			write_holes(holes, file, writer);
		else
			holes->held[kept++] = *file;
	}
	holes->held_count = kept;
}

void holes_finish(struct holes *holes, struct writer *writer)
{
	const struct timespec pause = {.tv_nsec = 1000000};
	uint64_t began_ns = monotonic_ns();
	while (atomic_load(&holes->looked) != holes->noted && monotonic_ns() - began_ns < FINISH_NS)
		nanosleep(&pause, NULL);
	holes_round(holes, writer, UINT64_MAX);
	holes->unseen_count += holes->noted - holes->taken;
}

void holes_put(const struct holes *holes, FILE *json)
{
	const char *separator = "";
	fputc('{', json);
	json_number(json, &separator, "files", holes->file_count);
	json_number(json, &separator, "bytes", holes->hole_bytes);
	json_number(json, &separator, "files_cut", holes->cut_count);
	json_number(json, &separator, "files_not_looked_at", holes->unseen_count);
	fputc('}', json);
}

void holes_say(const struct holes *holes, FILE *stream)
{
	if (holes->cut_count)
		fprintf(stream,
			"flextrace record: warning: of %" PRIu64
			" files some holes, or all, are not recorded: a replay fills them with data\n",
			holes->cut_count);
	if (holes->unseen_count)
		fprintf(stream,
			"flextrace record: warning: %" PRIu64
			" files were not looked at for holes: a replay fills them with data\n",
			holes->unseen_count);
}

void holes_deinit(struct holes *holes)
{
	if (!holes->files)
		return; /* never made */
	/* It may be at a file that somebody has locked: then it ends with the process. */
	if (atomic_load(&holes->looked) != holes->noted) {
		pthread_detach(holes->looker);
		return;
	}
	atomic_store(&holes->stop, true);
	sem_post(&holes->wanted);
	pthread_join(holes->looker, NULL);
	sem_destroy(&holes->wanted);
	for (; holes->taken != holes->noted; holes->taken++)
		forget(holes, slot_of(holes, holes->taken));
	for (uint32_t i = 0; i < holes->held_count; i++)
		forget(holes, &holes->held[i]);
	free(holes->files);
	free(holes->held);
	free(holes->found);
}

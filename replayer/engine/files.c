// SPDX-License-Identifier: Apache-2.0
// Turns a trace into the table of its files, by running once through its records without doing its operations.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "replayer/engine/file_moment.h"
#include "replayer/engine/message.h"
#include "replayer/engine/path_owners.h"
#include "replayer/engine/system_path.h"

enum { IDS_MIN = 1 << 18 }; /* that are met whatever the number of records; some 60 MB if the last of them is used */

struct files_survey {
	const struct trace *trace;
	struct file_list ids;
	struct file_list names;
	struct path_owners owners;
	struct file_ranges *holes;
	bool paths_moved; /* a directory was renamed: which file is at a path is not known any more */
	int64_t growth_bytes; /* now, of all files; less than nothing where room of the image is free */
	int64_t growth_bytes_max;
	uint32_t made_files; /* now */
	uint32_t made_files_max;
	struct class_choice class_choice;
	struct io_record last_foreign; /* request; a copy, as the memory of the trace is given back */
	bool asynchronous; /* as in the table */
	bool overlapping;
	bool foreign;
	bool syncs_all;
};

static struct file_list *list_of(struct files_survey *survey, uint32_t id, uint32_t *index)
{
	*index = id < FIRST_NAME_ID ? id : id - FIRST_NAME_ID;
	return id < FIRST_NAME_ID ? &survey->ids : &survey->names;
}

static bool has_come_up(const struct file_list *list, uint64_t id, uint32_t index)
{
	return id != 0 && id <= UINT32_MAX && index < list->count;
}

/* A file that has come up, or NULL. Id 0 is no file. */
static struct file *find_file(struct files_survey *survey, uint64_t id, struct moment **moment)
{
	uint32_t index;
	struct file_list *list = list_of(survey, (uint32_t)id, &index);

	if (!has_come_up(list, id, index))
		return NULL;
	*moment = &list->moments[index];
	return &list->files[index];
}

/*
 * Ids count the files, so one far beyond the number of records is damaged: its operations are skipped. A recording counts
 * files, too, of which --path keeps no record, and a part that was cut has the ids of the whole.
 */
static int meet_file(struct files_survey *survey, uint32_t id)
{
	uint64_t ids_max = survey->trace->count > IDS_MIN ? survey->trace->count : IDS_MIN;
	uint32_t index;
	struct file_list *list = list_of(survey, id, &index);

	if (id < FIRST_NAME_ID ? index > ids_max : index >= ids_max)
		return 0;
	return list_extend(list, index);
}

/* A file that the trace makes takes an inode until it is removed, or renamed: then it may replace another one. */
static void note_made(struct files_survey *survey, struct moment *moment)
{
	if (moment->made)
		return;
	moment->made = true;
	if (++survey->made_files > survey->made_files_max)
		survey->made_files_max = survey->made_files;
}

static void note_gone(struct files_survey *survey, struct moment *moment)
{
	survey->made_files -= moment->made && !moment->gone;
	moment->gone = true;
}

/* A file has grown by that. */
static void note_growth(struct files_survey *survey, uint64_t bytes)
{
	if (__builtin_add_overflow(survey->growth_bytes, (int64_t)bytes, &survey->growth_bytes))
		survey->growth_bytes = INT64_MAX; /* damaged records hold any number */
	if (survey->growth_bytes > survey->growth_bytes_max)
		survey->growth_bytes_max = survey->growth_bytes;
}

static void pass_io(struct files_survey *survey, const struct io_record *io, struct file *file, struct moment *moment)
{
	moment_use(file, moment, class_chosen(survey->class_choice, io->flags));
	uint32_t asked_bytes = io_replay_bytes(io);
	if (io->op == IO_READ && add_saturating(io->offset, asked_bytes) > moment->size_bytes &&
	    io->result < (int64_t)asked_bytes)
		file->exact_size = true;
	if (io->result <= 0)
		return;
	uint64_t end = add_saturating(io->offset, (uint64_t)io->result);

	moment_run(io, end, file, moment);
	if (io->op == IO_READ || file->block_device) {
		if (end > moment->size_bytes)
			moment_need(file, moment, end);
	} else if (io->op == IO_WRITE) {
		room_fill(&moment->room, io->offset, end);
		file->fills_holes |= file->hole_bytes && file_ranges_meet(survey->holes, io->file, io->offset, end);
		if (end > moment->size_bytes) {
			file->changes_size = true;
			moment->size_bytes = end;
		}
	}
}

/* Requests that overlap stand next to each other, whether a foreign trace is in the order of starts or of ends. */
static void note_source(struct files_survey *survey, const struct io_record *io)
{
	const struct io_record *last = &survey->last_foreign;

	survey->asynchronous |= io->source == SOURCE_AIO || io->source == SOURCE_IO_URING;
	if (io->source != SOURCE_UNKNOWN)
		return;
	survey->foreign = true;
	survey->overlapping |= io->thread == last->thread &&
			       io->start_ns < add_saturating(last->start_ns, last->duration_ns) &&
			       last->start_ns < add_saturating(io->start_ns, io->duration_ns);
	survey->last_foreign = *io;
}

/* The new name of a rename, link or symlink. */
static void pass_new_name(struct files_survey *survey, const struct fileop_record *op)
{
	struct moment *moment;
	struct file *target = find_file(survey, op->argument, &moment);

	if (target) {
		target->used = true;
		target->renamed = true;
	}
}

static uint64_t path_of(struct files_survey *survey, uint64_t id)
{
	uint32_t index;
	const struct file_list *list = list_of(survey, (uint32_t)id, &index);

	return has_come_up(list, id, index) ? list->paths[index].path : 0;
}

static void pass_open(struct files_survey *survey, const struct fileop_record *op, struct file *file,
		      struct moment *moment)
{
	uint32_t index;
	const struct file_list *list = list_of(survey, op->file, &index);
	bool created = op->flags & IO_CREATED;

	/* Altered traces give several files one id in turn. */
	if (created && moment->unlinked) {
		moment->unlinked = false;
		moment_resize(file, moment, 0);
	}
	moment->opens++;
	if (op->flags & IO_TRUNCATED && !file->block_device)
		moment_resize(file, moment, 0);
	moment_nameless(file, moment, created && !file->renamed && path_is_nameless(&list->paths[index]));
	if (file->nameless)
		note_gone(survey, moment);
}

static void pass_fileop(struct files_survey *survey, const struct fileop_record *op, struct file *file,
			struct moment *moment)
{
	if (op->result < 0)
		return;
	switch (op->op) {
	case FILEOP_OPEN:
		pass_open(survey, op, file, moment);
		return;
	case FILEOP_CLOSE:
		file->closed = true;
		if (moment->opens)
			moment->opens--;
		else
			file->opens_before++;
		return;
	case FILEOP_LINK:
		moment_nameless(file, moment, false);
		moment->links++;
		moment->path = 0; /* of several paths none is known here */
		file->renamed = true;
		note_gone(survey, moment);
		pass_new_name(survey, op);
		return;
	case FILEOP_RENAME:
		file->renamed = true;
		note_gone(survey, moment);
		pass_new_name(survey, op);
		return;
	case FILEOP_UNLINK:
		file->renamed = true;
		if (moment->links) {
			moment->links--;
			return;
		}
		moment->unlinked = true;
		note_gone(survey, moment);
		return;
	case FILEOP_SYNCFS:
		return; /* needs no descriptor of the file */
	case FILEOP_TRUNCATE:
		file->changes_size = true;
		moment_resize(file, moment, op->argument);
		break;
	case FILEOP_FALLOCATE:
		moment_allocate(op, file, moment);
		break;
	default:
		break;
	}
	moment_use(file, moment, 0);
}

static void describe(const struct file_record *record, struct file_ranges *holes, struct file *file,
		     struct moment *moment)
{
	file->described = true;
	file->created = record->flags & FILE_CREATED;
	file->new_name = record->flags & FILE_NEW_NAME;
	file->directory = record->type == FILE_TYPE_DIRECTORY;
	file->block_device = record->type == FILE_TYPE_BLOCK_DEVICE;
	file->resident_bytes = record->resident_bytes;
	/* Of a device only what is used is replaced by a file, not its terabytes. */
	if (!file->created && !file->new_name && !file->directory && !file->block_device)
		file->layout_bytes = record->size_bytes;
	moment->size_bytes = moment->recorded_bytes = file->layout_bytes;
	file->hole_bytes = file_ranges_clip(holes, record->file, file->layout_bytes);
	moment->room = (struct room){file_data_bytes(file), file->layout_bytes};
}

static bool changes_name(uint8_t op)
{
	return op == FILEOP_RENAME || op == FILEOP_UNLINK || op == FILEOP_RMDIR;
}

static bool leaves_as_it_is(const union record *record)
{
	uint8_t op = record->fileop.op;

	if (record->kind == RECORD_IO)
		return record->io.op == IO_READ;
	return op == FILEOP_FSYNC || op == FILEOP_FDATASYNC || op == FILEOP_SYNC_FILE_RANGE || op == FILEOP_MSYNC ||
	       op == FILEOP_FADVISE;
}

/* Whether several threads have to do with a file, and not only by reading it. */
static void note_sharing(const union record *record, struct file *file, struct moment *moment)
{
	if (!file->used)
		moment->thread = record->io.thread;
	file->shared |= moment->thread != record->io.thread;
	file->altered |= !leaves_as_it_is(record);
}

/* Whether a file is first seen at a path to which a name was moved of which nothing else was known: it was this one's. */
static bool was_brought(struct files_survey *survey, uint64_t path)
{
	struct moment *brought;
	uint32_t there = path_owner(&survey->owners, path);

	return there >= FIRST_NAME_ID && find_file(survey, there, &brought) && brought->path == path &&
	       path_of(survey, there) != path;
}

/* At its later path it is not yet at the start: what is renamed to that must not take its place. */
static void forget_path(struct files_survey *survey, uint32_t id)
{
	uint32_t index;
	const struct file_list *list = list_of(survey, id, &index);

	list->paths[index] = (struct path_hash){0};
}

/* Which file is at which path: one that another is renamed over gives its room back, if it is known to be still there. */
static int note_path(struct files_survey *survey, const union record *record, const struct file *file,
		     struct moment *moment)
{
	const struct fileop_record *op = &record->fileop;
	struct moment *replaced;

	if (record->kind == RECORD_FILEOP && op->op == FILEOP_RENAME && op->result >= 0) {
		moment->path = path_of(survey, op->argument);
		survey->paths_moved |= file->directory;
		uint32_t there = path_owner(&survey->owners, moment->path);
		const struct file *other = there == op->file ? NULL : find_file(survey, there, &replaced);
		if (other && replaced->path == moment->path) {
			uint64_t before = moment_growth(other, replaced);

			replaced->unlinked |=
				!(op->length & RENAME_EXCHANGE) && !replaced->links && !survey->paths_moved;
			replaced->path = 0;
			note_growth(survey, moment_growth(other, replaced) - before);
		}
	} else if (!file->used) {
		moment->path = path_of(survey, op->file);
		if (!file->created && was_brought(survey, moment->path))
			forget_path(survey, op->file);
	} else {
		return 0;
	}
	return path_owner_set(&survey->owners, moment->path, op->file);
}

static int pass_operation(struct files_survey *survey, const union record *record)
{
	int error = meet_file(survey, record->io.file);

	if (error)
		return error;
	if (record->kind == RECORD_FILEOP && record->fileop.op == FILEOP_SYMLINK && record->fileop.result >= 0)
		pass_new_name(survey, &record->fileop);
	survey->syncs_all |= record->kind == RECORD_FILEOP && record->fileop.op == FILEOP_SYNCFS;
	struct moment *moment;
	struct file *file = find_file(survey, record->io.file, &moment);
	if (!file || (record->kind == RECORD_IO && is_program_page(file, &record->io)))
		return 0;
	note_sharing(record, file, moment);
	error = note_path(survey, record, file, moment);
	file->used = true;
	if (record->kind == RECORD_IO)
		note_source(survey, &record->io);
	if (file->created)
		note_made(survey, moment);
	uint64_t growth = moment_growth(file, moment);
	if (file->directory) {
		file->renamed |= record->kind == RECORD_FILEOP && changes_name(record->fileop.op);
		if (record->kind == RECORD_FILEOP && record->fileop.op == FILEOP_RMDIR)
			note_gone(survey, moment);
	} else if (record->kind == RECORD_IO) {
		pass_io(survey, &record->io, file, moment);
	} else {
		pass_fileop(survey, &record->fileop, file, moment);
	}
	note_growth(survey, moment_growth(file, moment) - growth);
	return error;
}

static int pass_file(struct files_survey *survey, const struct file_record *record)
{
	struct moment *moment;
	int error = meet_file(survey, record->file);
	struct file *file = error ? NULL : find_file(survey, record->file, &moment);

	if (!file || file->described)
		return error;
	uint64_t growth = moment_growth(file, moment);
	describe(record, survey->holes, file, moment);
	note_growth(survey, moment_growth(file, moment) - growth);
	uint32_t index;
	struct file_list *list = list_of(survey, record->file, &index);
	path_begin(&list->paths[index], record);
	return 0;
}

static void pass_text(struct files_survey *survey, const struct text_record *text)
{
	uint32_t index;
	struct file_list *list = list_of(survey, text->reference, &index);

	if (!has_come_up(list, text->reference, index))
		return;
	if (text->index == 0)
		list->files[index].system = is_system_path(text);
	path_append(&list->paths[index], text);
}

static void summarize(struct file_table *table, const struct moment *moments)
{
	for (uint32_t id = 1; id < table->count; id++) {
		struct file *file = &table->files[id];

		/* A directory is needed only where it is renamed or removed. */
		file->laid_out = file->used && !file->created && !file->new_name && (!file->directory || file->renamed);
		table->namespace_changes |=
			file->used && (file->created || file->renamed || file->changes_size || file->fills_holes);
		file->exact_size = file->exact_size || file->changes_size;
		/* Another thread may rename a file over it that has never had to do with it. */
		file->contended = (file->shared && file->altered) || file->renamed || file->directory ||
				  table->files[file->path].renamed;
		table->undescribed += file->used && !file->described;
		if (!file->laid_out || file->directory)
			continue;
		table->laid_out_files++;
		table->laid_out_bytes = add_saturating(table->laid_out_bytes, file->layout_bytes);
		table->laid_out_hole_bytes = add_saturating(table->laid_out_hole_bytes, file->hole_bytes);
		table->unmeasured += file_is_unmeasured(file);
		table->extended +=
			file->described && !file->block_device && file->layout_bytes > moments[id].recorded_bytes;
	}
}

int files_survey_init(struct files_survey **survey, const struct trace *trace, struct class_choice class_choice,
		      struct file_ranges *holes)
{
	*survey = calloc(1, sizeof(**survey));
	if (*survey) {
		(*survey)->trace = trace;
		(*survey)->class_choice = class_choice;
		(*survey)->holes = holes;
		/* [0] is no file. */
		if (!list_extend(&(*survey)->ids, 0))
			return 0;
	}
	complain("no memory for the files of %s", trace->path);
	return -ENOMEM;
}

int files_survey(struct files_survey *survey, uint64_t first, uint64_t count)
{
	int error = 0;

	for (const union record *record = &survey->trace->records[first]; count && !error; count--, record++) {
		/* No cache holds them all, and processors look ahead by themselves only within a page: a third less time. */
		__builtin_prefetch(record + 32);
		if (record_is_operation(record))
			error = pass_operation(survey, record);
		else if (record->kind == RECORD_FILE)
			error = pass_file(survey, &record->file);
		else if (record->kind == RECORD_TEXT)
			pass_text(survey, &record->text);
	}
	if (error)
		complain("no memory for the files of %s", survey->trace->path);
	return error;
}

int files_survey_end(struct files_survey *survey, struct file_table *table)
{
	uint32_t names_from = survey->ids.count, names = survey->names.count;
	int error = names ? list_extend(&survey->ids, names_from + names - 1) : 0;

	if (!error && names) {
		memcpy(&survey->ids.files[names_from], survey->names.files, names * sizeof(struct file));
		memcpy(&survey->ids.moments[names_from], survey->names.moments, names * sizeof(struct moment));
		memcpy(&survey->ids.paths[names_from], survey->names.paths, names * sizeof(struct path_hash));
	}
	*table = (struct file_table){
		.files = survey->ids.files,
		.count = survey->ids.count,
		.names_from = names_from,
		.holes = survey->holes,
		.growth_bytes = (uint64_t)survey->growth_bytes_max,
		.created_files = survey->made_files_max,
		.class_choice = survey->class_choice,
		.asynchronous = survey->asynchronous,
		.overlapping = survey->overlapping,
		.foreign = survey->foreign,
		.syncs_all = survey->syncs_all,
	};
	survey->ids.files = NULL;
	if (!error)
		error = file_paths_resolve(table, survey->ids.paths);
	if (error)
		complain("no memory for the names of the files of %s", survey->trace->path);
	else
		summarize(table, survey->ids.moments);
	return error;
}

void files_survey_free(struct files_survey **survey)
{
	if (!*survey)
		return;
	list_free(&(*survey)->ids);
	list_free(&(*survey)->names);
	path_owners_free(&(*survey)->owners);
	free(*survey);
}

void files_free(struct file_table *table)
{
	free(table->files);
	table->files = NULL;
}

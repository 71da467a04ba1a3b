// SPDX-License-Identifier: Apache-2.0
// Turns a trace into the table of its files, by running through its operations without doing them.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "replayer/engine/files.h"
#include "replayer/engine/message.h"

/* What is known of a file at one moment of the run-through. */
struct moment {
	uint64_t size_bytes;
	uint64_t growth_bytes; /* of size_bytes, written by the trace beyond the image */
	uint64_t path_hash;
	uint32_t opens;
	uint32_t links; /* names beside its own, by recorded links */
	bool made; /* by the trace */
	bool gone; /* removed or renamed since */
	bool unlinked;
	bool resized; /* truncated: a read beyond the end says nothing about the size at the start */
};

struct run_through {
	struct file_table *table;
	struct moment *moments;
	uint64_t growth_bytes;
	uint32_t made_files;
};

/* A file that the trace makes takes an inode until it is removed, or renamed: then it may replace another one. */
static void note_made(struct run_through *run, struct moment *moment)
{
	if (moment->made)
		return;
	moment->made = true;
	if (++run->made_files > run->table->created_files)
		run->table->created_files = run->made_files;
}

static void note_gone(struct run_through *run, struct moment *moment)
{
	run->made_files -= moment->made && !moment->gone;
	moment->gone = true;
}

static void grow(struct run_through *run, struct moment *moment, uint64_t end, uint64_t bytes_max)
{
	if (end <= moment->size_bytes)
		return;
	uint64_t growth = end - moment->size_bytes < bytes_max ? end - moment->size_bytes : bytes_max;

	moment->size_bytes = end;
	moment->growth_bytes = add_saturating(moment->growth_bytes, growth);
	run->growth_bytes = add_saturating(run->growth_bytes, growth);
	if (run->growth_bytes > run->table->growth_bytes)
		run->table->growth_bytes = run->growth_bytes;
}

static void shrink(struct run_through *run, struct moment *moment, uint64_t size_bytes)
{
	if (size_bytes >= moment->size_bytes)
		return;
	uint64_t loss = moment->size_bytes - size_bytes;

	if (loss > moment->growth_bytes)
		loss = moment->growth_bytes;
	moment->growth_bytes -= loss;
	run->growth_bytes -= loss < run->growth_bytes ? loss : run->growth_bytes;
	moment->size_bytes = size_bytes;
}

static void need(struct file *file, struct moment *moment, uint64_t end)
{
	if (end > file->layout_bytes && !file->created && !moment->resized) {
		file->layout_bytes = end;
		if (end > moment->size_bytes)
			moment->size_bytes = end;
	}
}

static void pass_io(struct run_through *run, const struct io_record *io, struct file *file, struct moment *moment)
{
	if (!moment->opens)
		file->classes |= (uint8_t)(1u << class_of_flags(io->flags));
	if (moment->unlinked && !moment->opens)
		file->used_after_unlink = true;
	uint32_t asked_bytes = io_replay_bytes(io);
	if (io->op == IO_READ && add_saturating(io->offset, asked_bytes) > moment->size_bytes &&
	    io->result < (int64_t)asked_bytes)
		file->exact_size = true;
	if (io->result <= 0)
		return;
	uint64_t end = add_saturating(io->offset, (uint64_t)io->result);

	if (io->op == IO_READ || file->block_device) {
		if (end > moment->size_bytes)
			need(file, moment, end);
	} else if (io->op == IO_WRITE && end > moment->size_bytes) {
		file->changes_size = true;
		grow(run, moment, end, (uint64_t)io->result);
	}
}

/* The new name of a rename, link or symlink. */
static void pass_new_name(struct run_through *run, const struct fileop_record *op)
{
	uint32_t index = files_index(run->table, op->argument);
	if (index) {
		struct file *target = &run->table->files[index];

		target->used = true;
		target->renamed = true;
		run->table->files[target->name].renamed = true;
	}
}

static void pass_fileop(struct run_through *run, const struct fileop_record *op, struct file *file,
			struct moment *moment)
{
	if (op->result < 0)
		return;
	switch (op->op) {
	case FILEOP_OPEN:
		moment->opens++;
		if (op->flags & IO_TRUNCATED) {
			file->changes_size |= moment->size_bytes > 0;
			moment->resized = true;
			shrink(run, moment, 0);
		}
		return;
	case FILEOP_CLOSE:
		file->closed = true;
		if (moment->opens)
			moment->opens--;
		else
			file->opens_before++;
		return;
	case FILEOP_LINK:
		moment->links++;
		file->renamed = true;
		pass_new_name(run, op);
		return;
	case FILEOP_RENAME:
		file->renamed = true;
		note_gone(run, moment);
		pass_new_name(run, op);
		return;
	case FILEOP_UNLINK:
		file->renamed = true;
		if (moment->links) {
			moment->links--;
			return;
		}
		moment->unlinked = true;
		note_gone(run, moment);
		shrink(run, moment, 0);
		return;
	case FILEOP_SYNCFS:
		return; /* needs no descriptor of the file */
	case FILEOP_TRUNCATE:
		file->changes_size = true;
		moment->resized = true;
		shrink(run, moment, op->argument);
		if (op->argument > moment->size_bytes)
			moment->size_bytes = op->argument;
		break;
	case FILEOP_FALLOCATE:
		file->changes_size = true;
		/* Modes such as punching a hole (flags in the high half) take no room. */
		if (!(op->flags >> 16))
			grow(run, moment, add_saturating(op->argument, op->length), op->length);
		break;
	default:
		break;
	}
	if (!moment->opens)
		file->classes |= 1;
}

static uint64_t hash_text(uint64_t hash, const struct text_record *text)
{
	uint32_t bytes = text->bytes < TRACE_TEXT_BYTES ? text->bytes : TRACE_TEXT_BYTES;

	for (uint32_t i = 0; i < bytes; i++)
		hash = (hash ^ (uint8_t)text->text[i]) * 0x100000001b3ull; /* FNV-1a */
	return hash;
}

/* `text` is the begin of the path, which is longer than any of these. As characterize/requests.py, is_system_path. */
static bool is_system_path(const struct text_record *text)
{
	static const char *const directories[] = {"/usr/",  "/lib/", "/lib32/",	    "/lib64/",	  "/bin/",
						  "/sbin/", "/etc/", "/nix/store/", "/gnu/store/"};
	static const char local[] = "/usr/local/";

	if (!strncmp(text->text, local, strlen(local)))
		return false;
	for (size_t i = 0; i < sizeof(directories) / sizeof(*directories); i++) {
		if (!strncmp(text->text, directories[i], strlen(directories[i])))
			return true;
	}
	return false;
}

static void describe(const struct file_record *record, struct file *file, struct moment *moment)
{
	if (file->described)
		return;
	file->described = true;
	file->created = record->flags & FILE_CREATED;
	file->new_name = record->flags & FILE_NEW_NAME;
	file->directory = record->type == FILE_TYPE_DIRECTORY;
	file->block_device = record->type == FILE_TYPE_BLOCK_DEVICE;
	file->resident_bytes = record->resident_bytes;
	/* Of a device only what is used is replaced by a file, not its terabytes. */
	if (!file->created && !file->new_name && !file->directory && !file->block_device)
		file->layout_bytes = record->size_bytes;
	moment->size_bytes = file->layout_bytes;
	moment->path_hash = record->path_bytes ? 0xcbf29ce484222325ull : 0;
}

struct named {
	uint64_t hash;
	uint32_t id;
};

static int compare_named(const void *left, const void *right)
{
	const struct named *a = left, *b = right;

	if (a->hash != b->hash)
		return a->hash < b->hash ? -1 : 1;
	return a->id < b->id ? -1 : a->id > b->id;
}

/*
 * Every new name of a rename gets the place of the first file with the same path, so that a rename over an existing
 * file replaces it here as well (and does not leave it behind, filling the disk).
 */
static int resolve_names(struct file_table *table, const struct moment *moments)
{
	struct named *named = calloc(table->count, sizeof(*named));
	uint32_t count = 0;

	if (!named)
		return -ENOMEM;
	for (uint32_t id = 1; id < table->count; id++) {
		table->files[id].name = id;
		if (moments[id].path_hash)
			named[count++] = (struct named){moments[id].path_hash, id};
	}
	qsort(named, count, sizeof(*named), compare_named);
	for (uint32_t i = 1; i < count; i++) {
		struct file *file = &table->files[named[i].id];

		if (named[i].hash == named[i - 1].hash && file->new_name)
			file->name = table->files[named[i - 1].id].name;
	}
	free(named);
	return 0;
}

/* Ids count the files, so one beyond the number of records is damaged: its operations are skipped. */
static void count_ids(struct file_table *table, const struct trace *trace)
{
	uint32_t files = 0, names = 0;

	for (uint32_t i = 0; i < trace->count; i++) {
		const union record *record = &trace->records[i];
		uint32_t id = record->kind == RECORD_FILE ? record->file.file : 0;

		if (record_is_operation(record))
			id = record->io.file;
		if (id < FIRST_NAME_ID && id > files && id <= trace->count)
			files = id;
		if (id >= FIRST_NAME_ID && id - FIRST_NAME_ID >= names && id - FIRST_NAME_ID < trace->count)
			names = id - FIRST_NAME_ID + 1;
	}
	table->names_from = files + 1;
	table->count = files + 1 + names;
}

static bool changes_name(uint8_t op)
{
	return op == FILEOP_RENAME || op == FILEOP_UNLINK || op == FILEOP_RMDIR;
}

static void pass_records(struct run_through *run, const struct trace *trace)
{
	for (uint32_t i = 0; i < trace->count; i++) {
		const union record *record = &trace->records[i];
		uint32_t index = record_is_operation(record) ? files_index(run->table, record->io.file) : 0;
		struct file *file = &run->table->files[index];

		if (record->kind == RECORD_FILEOP && record->fileop.op == FILEOP_SYMLINK && record->fileop.result >= 0)
			pass_new_name(run, &record->fileop);
		if (!index || (record->kind == RECORD_IO && is_program_page(file, &record->io)))
			continue;
		file->used = true;
		if (file->created)
			note_made(run, &run->moments[index]);
		if (file->directory) {
			file->renamed |= record->kind == RECORD_FILEOP && changes_name(record->fileop.op);
			if (record->kind == RECORD_FILEOP && record->fileop.op == FILEOP_RMDIR)
				note_gone(run, &run->moments[index]);
		} else if (record->kind == RECORD_IO) {
			pass_io(run, &record->io, file, &run->moments[index]);
		} else {
			pass_fileop(run, &record->fileop, file, &run->moments[index]);
		}
	}
}

static void summarize(struct file_table *table, const struct moment *recorded)
{
	for (uint32_t id = 1; id < table->count; id++) {
		struct file *file = &table->files[id];

		/* A directory is needed only where it is renamed or removed. */
		file->laid_out = file->used && !file->created && !file->new_name && (!file->directory || file->renamed);
		table->namespace_changes |= file->used && (file->created || file->renamed || file->changes_size);
		file->exact_size = file->exact_size || file->changes_size;
		table->undescribed += file->used && !file->described;
		if (!file->laid_out || file->directory)
			continue;
		table->laid_out_files++;
		table->laid_out_bytes = add_saturating(table->laid_out_bytes, file->layout_bytes);
		table->unmeasured += file->resident_bytes == TRACE_NOT_MEASURED_U64;
		table->extended +=
			file->described && !file->block_device && file->layout_bytes > recorded[id].size_bytes;
	}
}

static void free_moments(struct moment **moments)
{
	free(*moments);
}

int files_read(struct file_table *table, const struct trace *trace)
{
	*table = (struct file_table){0};
	count_ids(table, trace);
	table->files = calloc(table->count, sizeof(*table->files));
	__attribute__((cleanup(free_moments))) struct moment *moments = calloc(table->count, sizeof(*moments));
	__attribute__((cleanup(free_moments))) struct moment *recorded = calloc(table->count, sizeof(*recorded));
	if (!table->files || !moments || !recorded) {
		complain("no memory for the %u files of %s", table->count - 1, trace->path);
		return -ENOMEM;
	}
	for (uint32_t id = 0; id < table->count; id++)
		table->files[id].resident_bytes = TRACE_NOT_MEASURED_U64;
	for (uint32_t i = 0; i < trace->count; i++) {
		const union record *record = &trace->records[i];

		if (record->kind == RECORD_FILE) {
			uint32_t index = files_index(table, record->file.file);

			if (!index)
				continue;
			describe(&record->file, &table->files[index], &moments[index]);
			recorded[index].size_bytes = moments[index].size_bytes;
		} else if (record->kind == RECORD_TEXT) {
			uint32_t index = files_index(table, record->text.reference);
			struct moment *moment = &moments[index];

			if (record->text.index == 0)
				table->files[index].system = is_system_path(&record->text);
			if (moment->path_hash)
				moment->path_hash = hash_text(moment->path_hash, &record->text);
		}
	}
	int error = resolve_names(table, moments);
	if (error) {
		complain("no memory for the names of the files of %s", trace->path);
		return error;
	}
	struct run_through run = {.table = table, .moments = moments};

	pass_records(&run, trace);
	summarize(table, recorded);
	return 0;
}

void files_free(struct file_table *table)
{
	free(table->files);
	table->files = NULL;
}

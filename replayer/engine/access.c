// SPDX-License-Identifier: Apache-2.0
// Turns a record into the resources that it touches, and how.
#include <errno.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>

#include "replayer/engine/access.h"

#define USE (1u << ACCESS_USE)
#define WRITE (1u << ACCESS_WRITE)
#define OPEN (1u << ACCESS_OPEN)
#define CLOSE (1u << ACCESS_CLOSE)
#define CHANGE (1u << ACCESS_CHANGE)
#define ALL (USE | WRITE | OPEN | CLOSE | CHANGE)

/* Resource 0 is the whole file system, which syncfs flushes. */
enum { FILE_SYSTEM = 0 };

static const struct access_rule use_rule = {.kind = ACCESS_USE, .waits = WRITE | CHANGE, .waits_own = OPEN},
				write_rule = {.kind = ACCESS_WRITE,
					      .waits = USE | WRITE | CHANGE,
					      .waits_own = OPEN,
					      .replaces_own = USE | WRITE},
				open_rule = {.kind = ACCESS_OPEN, .waits = CHANGE},
				close_rule = {.kind = ACCESS_CLOSE, .waits = CHANGE, .waits_own = USE | WRITE | OPEN},
				change_rule = {.kind = ACCESS_CHANGE, .waits = ALL, .replaces = ALL},
				/*
				 * Something that is flushed later and does not care for others of its kind: an entry of
				 * a directory, or for syncfs, any write.
				 */
	part_rule = {.kind = ACCESS_WRITE, .waits = USE},
				/* Its flushing: of all that was written before it. */
	flush_rule = {.kind = ACCESS_USE, .waits = WRITE};

int names_init(struct names *names, const struct file_table *table)
{
	*names = (struct names){.table = table};
	names->path_of = calloc(table->count, sizeof(*names->path_of));
	names->owner_of = calloc(table->count, sizeof(*names->owner_of));
	if (!names->path_of || !names->owner_of)
		return -ENOMEM;
	names_reset(names);
	return 0;
}

void names_reset(struct names *names)
{
	for (uint32_t id = 0; id < names->table->count; id++) {
		names->path_of[id] = names->table->files[id].path;
		names->owner_of[id] = 0;
	}
	for (uint32_t id = 1; id < names->table->count; id++) {
		const struct file *file = &names->table->files[id];

		if (!file->new_name && !file->created && !names->owner_of[file->path])
			names->owner_of[file->path] = id;
	}
	names->changes_count = 0;
}

void names_free(struct names *names)
{
	free(names->path_of);
	free(names->owner_of);
	*names = (struct names){0};
}

static void make_change(struct names *names, const struct name_change *change)
{
	uint32_t file = change->file, before = change->taken ? change->taken : names->path_of[file];

	if (!change->path) {
		names->owner_of[before] = file;
		return;
	}
	uint32_t other = names->owner_of[change->path];
	bool exchanged = change->exchanges && other && other != file;

	names->owner_of[before] = exchanged ? other : 0;
	if (exchanged)
		names->path_of[other] = before;
	names->owner_of[change->path] = file;
	names->path_of[file] = change->path;
}

/* Makes the first ones. */
static void make_changes(struct names *names, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		make_change(names, &names->changes[i]);
	names->changes_count -= count;
	memmove(names->changes, &names->changes[count], names->changes_count * sizeof(*names->changes));
}

/* By which of its paths a file is renamed or removed; 0 = not said. */
static uint32_t path_taken(const struct names *names, const struct fileop_record *op)
{
	bool takes_name = op->op == FILEOP_RENAME || op->op == FILEOP_UNLINK;

	return takes_name ? names->table->files[files_taken_name(names->table, op)].path : 0;
}

static void add_change(struct names *names, const struct fileop_record *op, uint32_t file)
{
	bool renames = op->op == FILEOP_RENAME;

	if (op->result < 0 || !(renames || (op->op == FILEOP_OPEN && op->flags & IO_CREATED)))
		return;
	if (names->changes_count == NAME_CHANGES_MAX)
		make_changes(names, 1);
	struct name_change change = {
		.start_ns = op->start_ns,
		.end_ns = add_saturating(op->start_ns, op->duration_ns),
		.file = file,
		.taken = path_taken(names, op),
		.path = renames ? names->table->files[files_index(names->table, op->argument)].path : 0,
		.exchanges = op->length & RENAME_EXCHANGE,
	};
	uint32_t at = names->changes_count++;

	for (; at > 0 && names->changes[at - 1].end_ns > change.end_ns; at--)
		names->changes[at] = names->changes[at - 1];
	names->changes[at] = change;
}

struct names_found names_start(struct names *names, const union record *record)
{
	const struct file *files = names->table->files;
	uint32_t file = files_index(names->table, record->io.file), ended = 0;

	while (ended < names->changes_count &&
	       ended_before(names->changes[ended].start_ns, names->changes[ended].end_ns, record->io.start_ns))
		ended++;
	if (ended)
		make_changes(names, ended);
	struct names_found found = {.path = names->path_of[file]};
	if (record->kind != RECORD_FILEOP)
		return found;
	uint32_t taken = path_taken(names, &record->fileop);
	if (taken)
		found.path = taken;
	if (record->fileop.op == FILEOP_RENAME) {
		uint32_t replaced = names->owner_of[files[files_index(names->table, record->fileop.argument)].path];

		found.replaced = replaced != file && files[replaced].contended ? replaced : 0;
	}
	add_change(names, &record->fileop, file);
	return found;
}

/* Files, then names by their paths. */
uint32_t access_resources(const struct file_table *table)
{
	return 2 * table->count;
}

static void add(struct accesses *accesses, uint32_t resource, const struct access_rule *rule)
{
	accesses->list[accesses->count++] = (struct access){resource, rule};
}

static void add_file(const struct file_table *table, uint32_t file, const struct access_rule *rule,
		     struct accesses *accesses)
{
	if (table->files[file].contended)
		add(accesses, file, rule);
	if (table->syncs_all && (rule->kind == ACCESS_WRITE || rule->kind == ACCESS_CHANGE))
		add(accesses, FILE_SYSTEM, &part_rule);
}

/* A path, and that of the directory that it lies in, whose entry is made or removed with it. */
static void add_name(const struct file_table *table, uint32_t path, const struct access_rule *rule,
		     struct accesses *accesses)
{
	uint32_t names_from = table->count;
	uint32_t parent = table->files[path].parent;

	if (!path)
		return;
	add(accesses, names_from + path, rule);
	if (!parent)
		return;
	add(accesses, names_from + table->files[parent].path, &use_rule);
	if (rule == &change_rule)
		add(accesses, parent, &part_rule);
}

static void add_open(const struct file_table *table, const struct fileop_record *op, struct names_found found,
		     struct accesses *accesses)
{
	uint32_t file = files_index(table, op->file);
	bool created = op->flags & IO_CREATED;
	const struct access_rule *opened = op->flags & IO_TRUNCATED ? &write_rule : &open_rule;

	add_file(table, file, created ? &change_rule : opened, accesses);
	add_name(table, found.path, created ? &change_rule : &use_rule, accesses);
}

static void add_rename(const struct file_table *table, const struct fileop_record *op, struct names_found found,
		       struct accesses *accesses)
{
	uint32_t file = files_index(table, op->file);
	uint32_t target = files_index(table, op->argument);

	add_file(table, file, &change_rule, accesses);
	add_name(table, found.path, &change_rule, accesses);
	add_name(table, table->files[target].path, &change_rule, accesses);
	if (found.replaced)
		add(accesses, found.replaced, &change_rule);
}

static void of_fileop(const struct file_table *table, const struct fileop_record *op, struct names_found found,
		      struct accesses *accesses)
{
	uint32_t file = files_index(table, op->file);
	const struct file *target = &table->files[files_index(table, op->argument)];

	switch (op->op) {
	case FILEOP_OPEN:
		add_open(table, op, found, accesses);
		return;
	case FILEOP_CLOSE:
		add_file(table, file, &close_rule, accesses);
		return;
	case FILEOP_RENAME:
		add_rename(table, op, found, accesses);
		return;
	case FILEOP_LINK:
		add_file(table, file, &open_rule, accesses);
		add_name(table, found.path, &use_rule, accesses);
		add_name(table, target->path, &change_rule, accesses);
		return;
	case FILEOP_SYMLINK:
		add_name(table, target->path, &change_rule, accesses);
		return;
	case FILEOP_UNLINK:
	case FILEOP_MKDIR:
	case FILEOP_RMDIR:
		add_file(table, file, &change_rule, accesses);
		add_name(table, found.path, &change_rule, accesses);
		return;
	case FILEOP_SYNCFS:
		add(accesses, FILE_SYSTEM, &flush_rule);
		return;
	case FILEOP_TRUNCATE:
	case FILEOP_FALLOCATE:
		add_file(table, file, &write_rule, accesses);
		return;
	default:
		add_file(table, file, &use_rule, accesses);
	}
}

void access_of(const struct file_table *table, const union record *record, struct names_found found,
	       struct accesses *accesses)
{
	uint32_t file = files_index(table, record->io.file);

	accesses->count = 0;
	if (record->kind != RECORD_IO) {
		/* What failed made no name, and is not repeated (operation.c). */
		if (record->fileop.result >= 0)
			of_fileop(table, &record->fileop, found, accesses);
	} else if (file && !is_program_page(&table->files[file], &record->io)) {
		add_file(table, file, record->io.op == IO_WRITE ? &write_rule : &use_rule, accesses);
	}
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns a trace into the table of its files: how large each has to be before the first operation, what of it is cached,
 * which descriptors it needs, and how much room the replay's own writes take at most.
 */
#ifndef FLEXTRACE_FILES_H
#define FLEXTRACE_FILES_H

#include <stdbool.h>
#include <stdint.h>

#include "replayer/engine/file_ranges.h"
#include "replayer/engine/trace_reader.h"

/* A descriptor is opened in one of these classes; O_SYNC contains O_DSYNC. */
enum {
	CLASS_DIRECT = 1,
	CLASS_DSYNC = 2,
	CLASS_SYNC = 4,
	CLASS_SYNCED = CLASS_DSYNC | CLASS_SYNC,
	DESCRIPTOR_CLASSES = 8,
};

static inline uint8_t class_of_flags(uint32_t flags)
{
	uint8_t class = flags & IO_DIRECT ? CLASS_DIRECT : 0;

	if (flags & IO_SYNC)
		return class | CLASS_SYNC;
	return flags & IO_DSYNC ? class | CLASS_DSYNC : class;
}

/* --direct and --sync: classes as recorded, or otherwise. */
struct class_choice {
	uint8_t kept; /* of the recorded class */
	uint8_t added;
	bool sync_off; /* fsync and its kin are left out as well */
};

static inline uint8_t class_chosen(struct class_choice choice, uint32_t flags)
{
	return (class_of_flags(flags) & choice.kept) | choice.added;
}

/* A reader that comes so far in one run has read ahead in the largest folios. */
enum { RUN_BYTES = 1 << 20 };

/* One file of the trace. */
struct file {
	uint64_t layout_bytes; /* size before the first operation */
	uint64_t hole_bytes; /* of it in recorded holes */
	uint64_t resident_bytes; /* of it in the page cache; TRACE_NOT_MEASURED_U64 */
	uint64_t moved_bytes; /* by all requests */
	uint64_t run_bytes; /* of these, by requests that follow each other for RUN_BYTES and more */
	uint32_t path; /* the first file that is known by the same path */
	uint32_t parent; /* the first one by the path of its directory; 0 = none */
	uint32_t opens_before; /* closes without an open: descriptors that were open before the trace began */
	uint8_t classes; /* bit set over classes: descriptors that are used before any recorded open */
	bool used: 1; /* an operation names it */
	bool described: 1; /* has a FILE record */
	bool created: 1; /* does not exist at the start */
	bool new_name: 1; /* only a name, target of a rename */
	bool directory: 1;
	bool block_device: 1; /* replaced by a regular file of the size that is needed, or by the replay's device */
	bool on_device: 1; /* stands for the replay's device */
	bool laid_out: 1; /* has to exist before the first operation */
	bool closed: 1; /* has a recorded close: its descriptors come and go */
	bool renamed: 1; /* has a recorded rename or unlink, or is a target of one */
	bool nameless: 1; /* is made without a name (O_TMPFILE), and gets none */
	bool used_after_unlink: 1; /* without a recorded open: its descriptor has to survive unlinks, renames, closes */
	bool changes_size: 1; /* a pass leaves it with another size */
	bool fills_holes: 1; /* a pass leaves data in its recorded holes */
	bool system: 1; /* one of the operating system's own files, by its path */
	bool shared: 1; /* several threads have to do with it */
	bool altered: 1; /* written, opened, closed, renamed: not only read and flushed */
	bool contended: 1; /* the order of what threads do with it matters */
	bool exact_size: 1; /* an operation meets its end: a larger file would give another result */
};

/* What of a file has data when it is laid out. */
static inline uint64_t file_data_bytes(const struct file *file)
{
	return file->layout_bytes - file->hole_bytes;
}

/* Whether nobody knows how much of it is to be cached, if there is anything. */
static inline bool file_is_unmeasured(const struct file *file)
{
	return file->layout_bytes && file->resident_bytes == TRACE_NOT_MEASURED_U64;
}

/*
 * Recorders count the ids of files from 1, and those of the new names of renames from 2^31. In the table the first
 * stand at their ids, the second behind them.
 */
#define FIRST_NAME_ID (1u << 31)

struct file_table {
	struct file *files; /* [0] is no file */
	uint32_t count; /* including [0] */
	uint32_t names_from; /* index of FIRST_NAME_ID */
	uint64_t growth_bytes; /* largest room that all files take at one time beyond that of the image */
	const struct file_ranges *holes; /* by id */
	uint64_t laid_out_bytes;
	uint64_t laid_out_hole_bytes; /* of these */
	uint32_t laid_out_files;
	uint32_t created_files; /* most that the trace has made and not removed at one time: each takes an inode */
	uint32_t unmeasured; /* laid out files whose cached bytes were not measured */
	uint32_t extended; /* laid out files that requests need larger than they were recorded */
	uint32_t undescribed; /* files without FILE record */
	struct class_choice class_choice;
	bool asynchronous; /* some requests were made by AIO or io_uring */
	bool overlapping; /* some requests of one thread of a foreign trace overlap */
	bool foreign; /* some requests are of a trace that names no call: their threads may be made up */
	bool syncs_all; /* some operation flushes all files */
	bool namespace_changes; /* a pass creates, renames, removes, resizes or fills files, so that it has to be undone */
};

/*
 * A page that was read of a mapped program, library or other file of the operating system: it says what the program is,
 * not what it works on, and a replay runs another program. characterize/requests.py (left_out) has the same rule.
 */
static inline bool is_program_page(const struct file *file, const struct io_record *io)
{
	return io->source == SOURCE_MMAP && io->op == IO_READ && (io->flags & IO_PROGRAM || file->system);
}

struct files_survey;

/* For the records of the trace in turn, by blocks; then makes the table. Holes end where their files do, from then on. */
int files_survey_init(struct files_survey **survey, const struct trace *trace, struct class_choice class_choice,
		      struct file_ranges *holes);
int files_survey(struct files_survey *survey, uint64_t first, uint64_t count);
int files_survey_end(struct files_survey *survey, struct file_table *table);
void files_survey_free(struct files_survey **survey);
void files_free(struct file_table *table);

/* Place of an id in the table, or 0 where it is unknown. */
static inline uint32_t files_index(const struct file_table *table, uint64_t id)
{
	if (id < table->names_from)
		return (uint32_t)id;
	return id >= FIRST_NAME_ID && id - FIRST_NAME_ID < table->count - table->names_from
		       ? table->names_from + (uint32_t)(id - FIRST_NAME_ID)
		       : 0;
}

/* The name that a rename or unlink takes, as a place in the table; 0 = not said, or unknown. */
static inline uint32_t files_taken_name(const struct file_table *table, const struct fileop_record *op)
{
	return files_index(table, op->length >> FILEOP_NAME_SHIFT);
}

/* The recorded holes of a file, of a place in the table; some may be empty. */
static inline const struct file_range *file_holes(const struct file_table *table, uint32_t index, size_t *count)
{
	*count = 0;
	return table->files[index].hole_bytes ? file_ranges_of(table->holes, index, count) : NULL;
}

#endif

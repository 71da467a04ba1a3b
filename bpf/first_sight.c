// SPDX-License-Identifier: Apache-2.0
/*
 * Turns FILE records, and the operations behind them, into what is looked up of files as they were at their first sight.
 */
#include "first_sight.h"

#include <linux/falloc.h>

enum { RESIDENCY_NS_MAX = 1000000 }; /* of each round; the rings fill meanwhile */

int first_sight_init(struct first_sight *first_sight)
{
	int error = residency_init(&first_sight->residency);
	return error ? error : holes_init(&first_sight->holes);
}

/* Whether data of a file may be a hole afterwards; a copy may share the holes of the file that it is of. */
static bool may_make_hole(const struct pending *pending)
{
	const struct fileop_record *fileop = &pending->record.fileop;
	if (pending->record.kind == RECORD_IO)
		return pending->record.io.op == IO_WRITE && pending->record.io.source == SOURCE_SPLICE;
	if (pending->record.kind != RECORD_FILEOP || (!fileop->file && fileop->result < 0))
		return false;
	return fileop->op == FILEOP_TRUNCATE || (fileop->op == FILEOP_OPEN && fileop->flags & IO_TRUNCATED) ||
	       (fileop->op == FILEOP_FALLOCATE && fileop->flags >> 16 & ~(uint32_t)FALLOC_FL_KEEP_SIZE);
}

void first_sight_meet(struct first_sight *first_sight, const struct pending *pending)
{
	const struct file_record *file = &pending->record.file;
	residency_note(&first_sight->residency, file, pending->path, (pid_t)pending->viewer_process);
	holes_note(&first_sight->holes, file, pending->path, (pid_t)pending->viewer_process);
}

void first_sight_observe(struct first_sight *first_sight, const struct pending *pending)
{
	/* An IO record has both at the same places. Whose a name is comes out later: 0 stands for any file. */
	const struct fileop_record *fileop = &pending->record.fileop;
	if (may_make_hole(pending))
		holes_doubt(&first_sight->holes, fileop->file, fileop->start_ns, pending->end_ns);
}

void first_sight_round(struct first_sight *first_sight, struct writer *writer, uint64_t passed_ns)
{
	residency_round(&first_sight->residency, writer, passed_ns, RESIDENCY_NS_MAX);
	holes_round(&first_sight->holes, writer, passed_ns);
}

bool first_sight_is_busy(const struct first_sight *first_sight)
{
	return first_sight->residency.looked < first_sight->residency.count;
}

void first_sight_finish(struct first_sight *first_sight, struct writer *writer)
{
	residency_round(&first_sight->residency, writer, UINT64_MAX, 0);
	holes_finish(&first_sight->holes, writer);
}

void first_sight_deinit(struct first_sight *first_sight)
{
	residency_deinit(&first_sight->residency);
	holes_deinit(&first_sight->holes);
}

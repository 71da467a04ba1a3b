// SPDX-License-Identifier: Apache-2.0
// Turns operations into nothing, when they are due and in order: what is left is the error that this host makes.
#include "replayer/engine/request.h"

/* Every operation that could be done has come to what it came to when recorded. */
static void pretend(struct worker *worker, const union record *record, uint32_t number)
{
	const struct io_record *io = &record->io;
	uint32_t file;

	if (record->kind != RECORD_IO) {
		tally_result(&worker->tally, KIND_FILEOP, record->fileop.result, record->fileop.result);
		return;
	}
	enum skip_reason reason = request_skip_reason(worker->run, io, &file);
	if (reason != SKIP_REASONS) {
		tally_skip(&worker->tally, KIND_IO, reason, 1);
		return;
	}
	tally_result(&worker->tally, KIND_IO, io->result, io->result);
	if (io->result > 0)
		count_moved(worker, io->op == IO_WRITE, (uint64_t)io->result);
}

void engine_null_pass(struct worker *worker)
{
	pass_in_turn(worker, pretend);
	worker->finished_ns = now_ns();
}

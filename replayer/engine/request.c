// SPDX-License-Identifier: Apache-2.0
// Turns an IO record into what is to be moved where, and its end into counts.
#include <sys/stat.h>

#include "replayer/engine/direct_sectors.h"
#include "replayer/engine/give_up.h"

/*
 * Whether the storage has whole sectors for a direct request; its own may be larger than those of the recording's. What is
 * refused everywhere, or was when it was recorded, stays direct, and is refused here as well.
 */
static bool has_sectors(const struct run *run, const struct io_record *io, uint32_t file, uint32_t bytes)
{
	uint64_t place = io->offset | bytes;

	if (io->flags & IO_DIRECT && (place % SECTOR_BYTES_MIN || io->result < 0))
		return true;
	return place % descriptors_sector_bytes(&run->descriptors, file) == 0;
}

enum skip_reason request_skip_reason(const struct run *run, const struct io_record *io, uint32_t *file)
{
	*file = files_index(run->table, io->file);
	const struct file *described = &run->table->files[*file];

	if (is_program_page(described, io))
		return SKIP_PROGRAM_PAGE;
	if (!*file || described->directory || described->new_name)
		return SKIP_UNKNOWN_FILE;
	if (io->op != IO_READ && io->op != IO_WRITE)
		return SKIP_UNKNOWN_OPERATION;
	if (is_caller_error(io->result))
		return SKIP_CALLER_ERROR;
	if (io->op == IO_WRITE && image_protects(run->image, described))
		return SKIP_WRITES_OFF;
	/* A write changed nothing; one side of a splice failed by the other one (EXDEV, EPIPE), which is not repeated. */
	bool left_out = io->result < 0 && (io->op == IO_WRITE || io->source == SOURCE_SPLICE);
	return left_out ? SKIP_RECORDED_FAILURE : SKIP_REASONS;
}

bool request_prepare(struct worker *worker, const struct io_record *io, uint32_t number, struct request *request)
{
	struct run *run = worker->run;
	uint32_t index;
	enum skip_reason reason = request_skip_reason(run, io, &index);

	if (reason != SKIP_REASONS) {
		tally_skip(&worker->tally, KIND_IO, reason, 1);
		return false;
	}
	uint8_t class = class_chosen(run->table->class_choice, io->flags);
	uint32_t bytes = io_replay_bytes(io);
	if (class & CLASS_DIRECT && !has_sectors(run, io, index, bytes)) {
		class &= (uint8_t)~CLASS_DIRECT;
		worker->tally.unaligned[!!(io->flags & IO_DIRECT)]++;
	}
	worker_waits(worker);
	int descriptor = descriptors_acquire(&run->descriptors, index, class);
	/* The sync after a write to a file whose times somebody had asked for takes longer. */
	if (descriptor >= 0 && io->op == IO_WRITE && io->flags & IO_CTIME_QUERIED) {
		struct stat status;

		fstat(descriptor, &status);
	}
	worker_returned(worker);
	if (descriptor < 0) {
		if (descriptor == -ESTALE)
			tally_skip(&worker->tally, KIND_IO, SKIP_NO_SUCH_FILE, 1);
		else
			tally_result(&worker->tally, KIND_IO, io->result, descriptor);
		return false;
	}
	if (io->op == IO_WRITE && (class ^ class_of_flags(io->flags)) & CLASS_SYNCED)
		worker->tally.sync_changed++;
	*request = (struct request){
		.due = worker->due,
		.offset = io->offset,
		.bytes = bytes,
		.file = index,
		.recorded = io->result,
		.descriptor = descriptor,
		.class = class,
		.write = io->op == IO_WRITE,
		.write_data = request_write_data(run, io, number),
	};
	return true;
}

void request_start(struct worker *worker, struct request *request, uint64_t start_ns)
{
	/* Before the clock is read: it may have to wait for the processor that did so last. */
	bool first = busy_enter(&worker->run->io_time);

	request->start_ns = start_ns ? start_ns : now_ns();
	if (first)
		busy_started(&worker->run->io_time, request->start_ns);
}

void request_count(struct worker *worker, const struct request *request, int64_t result, uint64_t end_ns)
{
	struct histogram *histograms = worker->histograms;
	bool write = request->write;

	busy_leave(&worker->run->io_time, request->start_ns, end_ns);
	worker->finished_ns = end_ns;
	tally_result(&worker->tally, KIND_IO, request->recorded, result);
	if (result <= 0)
		return;
	histogram_add(&histograms[write ? HISTOGRAM_WRITE : HISTOGRAM_READ], end_ns - request->start_ns);
	if (request->due.at_ns)
		histogram_add(&histograms[write ? HISTOGRAM_WRITE_DUE : HISTOGRAM_READ_DUE],
			      end_ns - request->due.at_ns);
	count_moved(worker, write, (uint64_t)result);
}

void request_release(struct worker *worker, const struct request *request)
{
	worker_waits(worker);
	descriptors_release(&worker->run->descriptors, request->file, request->class);
	worker_returned(worker);
}

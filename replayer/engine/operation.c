// SPDX-License-Identifier: Apache-2.0
// Turns one record of a trace into the system call that it describes, its duration, and a count of its outcome.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "replayer/engine/first_touch.h"
#include "replayer/engine/give_up.h"

/*
 * One call for every record, whatever it came from: a request of AIO or io_uring, the pages of a mapping, one side of a
 * splice. They move the same bytes of the same file.
 */
static void replay_io(struct worker *worker, const union record *record, uint32_t number)
{
	const struct io_record *io = &record->io;
	struct request request;

	if (!request_prepare(worker, io, number, &request))
		return;
	off_t offset = (off_t)request.offset;
	uint8_t *read_data = first_touch_read_data(worker, io, number);
	request_start(worker, &request, 0);
	worker->called_ns = request.start_ns;
	worker_calls(worker, record, &request);
	ssize_t result = request.write ? pwrite(request.descriptor, request.write_data, request.bytes, offset)
				       : pread(request.descriptor, read_data, request.bytes, offset);
	int error = result < 0 ? -errno : 0;
	uint64_t end_ns = now_ns();

	worker_returned(worker);
	request_count(worker, &request, error ? error : result, end_ns);
	worker_called(worker);
	request_release(worker, &request);
}

/* What a file operation came to: a result as the kernel gives it, or a reason why it was not done. */
struct done {
	int64_t result;
	uint64_t ended_ns;
	enum skip_reason reason;
	bool skipped;
};

static struct done skipped(enum skip_reason reason)
{
	return (struct done){.ended_ns = now_ns(), .reason = reason, .skipped = true};
}

/* By 0, a descriptor or -errno, when the call has just returned: what the engine notes of it comes behind its end. */
static struct done ended(int result)
{
	return (struct done){.result = result < 0 ? result : 0, .ended_ns = now_ns()};
}

static struct done finished(int result)
{
	return ended(result < 0 ? -errno : 0);
}

static struct done opened(struct run *run, uint32_t index, uint8_t class, int descriptor)
{
	struct done done = ended(descriptor);

	if (descriptor >= 0)
		descriptors_opened(&run->descriptors, index, class, descriptor);
	return done;
}

static struct done open_by_name(struct worker *worker, const struct fileop_record *op, uint32_t index)
{
	struct run *run = worker->run;
	uint8_t class = class_chosen(run->table->class_choice, op->flags);
	int flags = O_CLOEXEC | O_RDWR | O_NOFOLLOW | class_open_flags(class);
	char name[IMAGE_NAME_BYTES];
	enum name_state state = descriptors_name(&run->descriptors, index, name);
	/* A name that is gone comes back only by being made again: altered traces give several files one id in turn. */
	if (state == NAME_GONE && !(op->flags & IO_CREATED))
		return skipped(SKIP_NO_SUCH_FILE);
	if (state != NAME_THERE)
		image_name(name, false, index);
	flags |= op->flags & IO_CREATED || state != NAME_THERE ? O_CREAT : 0;
	/* On a block device it does nothing, and so not on the file that stands for one. */
	flags |= op->flags & IO_TRUNCATED && !run->table->files[index].block_device ? O_TRUNC : 0;
	worker->called_ns = now_ns();
	int descriptor = descriptors_open(&run->descriptors, run->image->directory, name, flags);
	struct done done = opened(run, index, class, descriptor);
	/* It has one for a moment, by which a recording of the replay knows it. */
	if (done.result == 0 && run->table->files[index].nameless && !unlinkat(run->image->directory, name, 0))
		descriptors_unlinked(&run->descriptors, index, descriptors_place(&run->descriptors, index, 0));
	return done;
}

static struct done replay_open(struct worker *worker, const struct fileop_record *op, uint32_t index)
{
	struct run *run = worker->run;

	if (run->table->files[index].directory) {
		/* Which directory does not matter to the time that it takes. */
		int descriptor = openat(run->image->directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		return opened(run, index, 0, descriptor < 0 ? -errno : descriptor);
	}
	uint8_t class = class_chosen(run->table->class_choice, op->flags);
	if (run->table->files[index].on_device) {
		int device = target_reopen(run->image->target, O_CLOEXEC | class_open_flags(class));

		return opened(run, index, class, device);
	}
	if (!run->table->files[index].renamed)
		return open_by_name(worker, op, index);
	descriptors_use_name(&run->descriptors, index);
	struct done done = open_by_name(worker, op, index);
	descriptors_used_name(&run->descriptors, index);
	return done;
}

static struct done replay_close(struct worker *worker, uint32_t index)
{
	struct run *run = worker->run;
	int closing[DESCRIPTOR_CLASSES];
	int count = descriptors_closing(&run->descriptors, index, closing);
	int result = 0;

	if (count < 0)
		return skipped(count == -ENOENT ? SKIP_NOT_OPEN : SKIP_SHARED_DESCRIPTOR);
	worker->called_ns = now_ns();
	for (int i = 0; i < count; i++)
		result |= close(closing[i]);
	return finished(result);
}

static struct done rename_within(struct worker *worker, struct move move, uint32_t place, bool exchange)
{
	struct run *run = worker->run;
	int directory = run->image->directory;
	bool is_directory = run->table->files[move.file].directory;
	char from[IMAGE_NAME_BYTES], to[IMAGE_NAME_BYTES];

	image_name(from, is_directory, place);
	image_name(to, is_directory, move.name);
	descriptors_keep(&run->descriptors, move.other);
	worker->called_ns = now_ns();
	struct done done = finished(renameat2(directory, from, directory, to, exchange ? RENAME_EXCHANGE : 0));
	if (done.result == 0 && exchange)
		descriptors_exchanged(&run->descriptors, move.file, place, move.name);
	else if (done.result == 0)
		descriptors_renamed(&run->descriptors, move.file, place, move.name);
	return done;
}

static struct done replay_rename(struct worker *worker, const struct fileop_record *op, uint32_t index)
{
	struct run *run = worker->run;
	uint32_t target = files_index(run->table, op->argument);

	if (!target)
		return skipped(SKIP_UNKNOWN_FILE);
	struct move move = descriptors_begin_move(&run->descriptors, index, target);
	uint32_t place = descriptors_place(&run->descriptors, index, files_taken_name(run->table, op));
	struct done done =
		place ? rename_within(worker, move, place, op->length & RENAME_EXCHANGE) : skipped(SKIP_NO_SUCH_FILE);
	descriptors_end_move(&run->descriptors, move);
	return done;
}

static struct done replay_link(struct worker *worker, const struct fileop_record *op, uint32_t index)
{
	struct run *run = worker->run;
	char from[IMAGE_NAME_BYTES], to[IMAGE_NAME_BYTES];
	uint32_t target = files_index(run->table, op->argument);

	if (!target)
		return skipped(SKIP_UNKNOWN_FILE);
	struct done done = skipped(SKIP_NO_SUCH_FILE);
	descriptors_use_name(&run->descriptors, index);
	if (descriptors_name(&run->descriptors, index, from) == NAME_THERE) {
		image_name(to, run->table->files[index].directory, target);
		worker->called_ns = now_ns();
		done = finished(linkat(run->image->directory, from, run->image->directory, to, 0));
		if (done.result == 0)
			descriptors_linked(&run->descriptors, index, target);
	}
	descriptors_used_name(&run->descriptors, index);
	return done;
}

/* Where a symbolic link points to does not matter to the time that it takes, and the image has nothing to be found. */
static struct done replay_symlink(struct worker *worker, const struct fileop_record *op)
{
	struct run *run = worker->run;
	char name[IMAGE_NAME_BYTES];
	uint32_t target = files_index(run->table, op->argument);

	if (!target)
		return skipped(SKIP_UNKNOWN_FILE);
	image_name(name, false, target);
	worker->called_ns = now_ns();
	struct done done = finished(symlinkat(IMAGE_MARKER, run->image->directory, name));
	if (done.result == 0)
		descriptors_created(&run->descriptors, target);
	return done;
}

static struct done remove_name(struct worker *worker, const struct fileop_record *op, uint32_t index)
{
	struct run *run = worker->run;
	bool is_directory = run->table->files[index].directory;
	char name[IMAGE_NAME_BYTES];

	descriptors_keep(&run->descriptors, index);
	uint32_t place = descriptors_place(&run->descriptors, index, files_taken_name(run->table, op));
	if (!place)
		return skipped(SKIP_NO_SUCH_FILE);
	image_name(name, is_directory, place);
	worker->called_ns = now_ns();
	struct done done = finished(unlinkat(run->image->directory, name, is_directory ? AT_REMOVEDIR : 0));
	if (done.result == 0)
		descriptors_unlinked(&run->descriptors, index, place);
	return done;
}

static struct done replay_unlink(struct worker *worker, const struct fileop_record *op, uint32_t index)
{
	struct descriptors *descriptors = &worker->run->descriptors;
	struct move move = descriptors_begin_move(descriptors, index, 0);
	struct done done = remove_name(worker, op, index);

	descriptors_end_move(descriptors, move);
	return done;
}

static struct done replay_mkdir(struct worker *worker, uint32_t index)
{
	struct run *run = worker->run;
	char name[IMAGE_NAME_BYTES];

	image_name(name, true, index);
	worker->called_ns = now_ns();
	struct done done = finished(mkdirat(run->image->directory, name, 0755));
	if (done.result == 0)
		descriptors_created(&run->descriptors, index);
	return done;
}

/* sync(2), which is of no file, flushes devices as well; the directory lies on another one. */
static struct done replay_syncfs(const struct image *image, const struct fileop_record *op)
{
	const struct target *target = image->target;

	if (!op->file && target && target->writable) {
		int result = fsync(target->descriptor);

		if (result < 0 || !image->path)
			return finished(result);
	}
	return finished(syncfs(image->directory));
}

/* An operation on an open descriptor. */
static struct done replay_on_descriptor(const struct fileop_record *op, int descriptor)
{
	off_t offset = (off_t)op->argument;
	off_t length = (off_t)op->length;
	int high = (int)(op->flags >> 16);

	switch (op->op) {
	case FILEOP_FSYNC:
		return finished(fsync(descriptor));
	case FILEOP_FDATASYNC:
		return finished(fdatasync(descriptor));
	case FILEOP_SYNC_FILE_RANGE:
		/* What programs do with it is to start the writing (RocksDB, PostgreSQL). */
		return finished(
			sync_file_range(descriptor, offset, length, high ? (unsigned int)high : SYNC_FILE_RANGE_WRITE));
	case FILEOP_MSYNC:
		/* The kernel does the same; and nothing, where the caller does not want to wait. */
		return finished(high & MS_SYNC ? fdatasync(descriptor) : 0);
	case FILEOP_TRUNCATE:
		return finished(ftruncate(descriptor, offset));
	case FILEOP_FALLOCATE:
		return finished(fallocate(descriptor, high, offset, length));
	case FILEOP_FADVISE:
		return ended(-posix_fadvise(descriptor, offset, length, high));
	default:
		return skipped(SKIP_UNKNOWN_OPERATION);
	}
}

static bool is_sync(const struct fileop_record *op)
{
	return op->op == FILEOP_FSYNC || op->op == FILEOP_FDATASYNC || op->op == FILEOP_SYNC_FILE_RANGE ||
	       op->op == FILEOP_SYNCFS || (op->op == FILEOP_MSYNC && op->flags >> 16 & MS_SYNC);
}

static bool is_on_name(uint8_t op)
{
	return op == FILEOP_OPEN || op == FILEOP_CLOSE || op == FILEOP_RENAME || op == FILEOP_UNLINK ||
	       op == FILEOP_MKDIR || op == FILEOP_RMDIR || op == FILEOP_LINK || op == FILEOP_SYMLINK;
}

static bool changes_size(uint8_t op)
{
	return op == FILEOP_TRUNCATE || op == FILEOP_FALLOCATE;
}

static struct done replay_on_name(struct worker *worker, const struct fileop_record *op, uint32_t index)
{
	if (op->result < 0)
		return skipped(SKIP_RECORDED_FAILURE);
	if (worker->run->table->files[index].on_device && op->op != FILEOP_OPEN && op->op != FILEOP_CLOSE)
		return skipped(SKIP_DEVICE_NAME);
	switch (op->op) {
	case FILEOP_OPEN:
		return replay_open(worker, op, index);
	case FILEOP_CLOSE:
		return replay_close(worker, index);
	case FILEOP_RENAME:
		return replay_rename(worker, op, index);
	case FILEOP_UNLINK:
	case FILEOP_RMDIR:
		return replay_unlink(worker, op, index);
	case FILEOP_LINK:
		return replay_link(worker, op, index);
	case FILEOP_SYMLINK:
		return replay_symlink(worker, op);
	default:
		return replay_mkdir(worker, index);
	}
}

/* On an open descriptor, or all that its file system has; counts the time that syncs take. */
static struct done replay_in_time(struct worker *worker, const struct fileop_record *op, int descriptor)
{
	struct run *run = worker->run;
	bool sync = is_sync(op);
	bool first = sync && busy_enter(&run->sync_time);
	uint64_t start_ns = now_ns();

	if (first)
		busy_started(&run->sync_time, start_ns);
	worker->called_ns = start_ns;
	worker->sync_start_ns = sync ? start_ns : 0;
	struct done done =
		op->op == FILEOP_SYNCFS ? replay_syncfs(run->image, op) : replay_on_descriptor(op, descriptor);
	uint64_t end_ns = done.ended_ns;

	worker_returned(worker);
	worker->sync_start_ns = 0;
	if (sync) {
		busy_leave(&run->sync_time, start_ns, end_ns);
		histogram_add(&worker->histograms[HISTOGRAM_SYNC], end_ns - start_ns);
		if (worker->due.at_ns)
			histogram_add(&worker->histograms[HISTOGRAM_SYNC_DUE], end_ns - worker->due.at_ns);
	}
	return done;
}

static struct done replay_on_file(struct worker *worker, const struct fileop_record *op, uint32_t index)
{
	struct run *run = worker->run;
	const struct file *file = &run->table->files[index];

	if (run->table->class_choice.sync_off && is_sync(op))
		return skipped(SKIP_SYNC_OFF);
	if (is_caller_error(op->result))
		return skipped(SKIP_CALLER_ERROR);
	if (changes_size(op->op) && image_protects(run->image, file))
		return skipped(SKIP_WRITES_OFF);
	if (changes_size(op->op) && op->result < 0)
		return skipped(SKIP_RECORDED_FAILURE);
	/* Of its file system a sync flushes all; here, only what the replay wrote is there to be flushed. */
	if (file->directory || op->op == FILEOP_SYNCFS)
		return replay_in_time(worker, op, run->image->directory);
	int descriptor = descriptors_acquire(&run->descriptors, index, 0);

	worker_returned(worker);
	if (descriptor < 0)
		return descriptor == -ESTALE ? skipped(SKIP_NO_SUCH_FILE) : ended(descriptor);
	worker_waits(worker);
	struct done done = replay_in_time(worker, op, descriptor);

	worker_waits(worker);
	descriptors_release(&run->descriptors, index, 0);
	worker_returned(worker);
	return done;
}

static void replay_fileop(struct worker *worker, const union record *record)
{
	const struct fileop_record *op = &record->fileop;
	uint32_t index = files_index(worker->run->table, op->file);
	struct done done;

	worker_calls(worker, record, NULL);
	if (!index && op->op != FILEOP_SYNCFS && op->op != FILEOP_SYMLINK) {
		done = skipped(op->result < 0 ? SKIP_RECORDED_FAILURE : SKIP_UNKNOWN_FILE);
	} else if (is_on_name(op->op)) {
		done = replay_on_name(worker, op, index);
		worker_returned(worker);
	} else {
		done = replay_on_file(worker, op, index);
	}
	worker->finished_ns = done.ended_ns;
	worker_called(worker);
	if (done.skipped)
		tally_skip(&worker->tally, KIND_FILEOP, done.reason, 1);
	else
		tally_result(&worker->tally, KIND_FILEOP, op->result, done.result);
}

void operation_replay(struct worker *worker, const union record *record, uint32_t number)
{
	if (record->kind == RECORD_IO)
		replay_io(worker, record, number);
	else
		replay_fileop(worker, record);
}

// SPDX-License-Identifier: Apache-2.0
// Turns what one operation does to a file into what is known of the file from then on.
#include "replayer/engine/file_moment.h"

uint64_t moment_growth(const struct file *file, const struct moment *moment)
{
	bool gone = moment->unlinked && !moment->opens && !file->used_after_unlink;

	return (gone ? 0 : moment->room.bytes) - file_data_bytes(file);
}

void moment_need(struct file *file, struct moment *moment, uint64_t end)
{
	if (end > file->layout_bytes && !file->created && !moment->resized) {
		room_lay_out(&moment->room, file->layout_bytes, end);
		file->layout_bytes = end;
		if (end > moment->size_bytes)
			moment->size_bytes = end;
	}
}

/*
 * A run is what follows its first request, which nobody has read ahead of. Threads that read a file by turns are in no
 * sequence here, nor are they for the kernel if they share a descriptor.
 */
void moment_run(const struct io_record *io, uint64_t end, struct file *file, struct moment *moment)
{
	uint64_t bytes = (uint64_t)io->result;
	uint64_t before = io->offset == moment->run_end ? moment->run_bytes : 0;

	moment->run_bytes = io->offset == moment->run_end ? add_saturating(before, bytes) : 0;
	moment->run_end = end;
	if (moment->run_bytes >= RUN_BYTES)
		file->run_bytes = add_saturating(file->run_bytes, before >= RUN_BYTES ? bytes : moment->run_bytes);
	file->moved_bytes = add_saturating(file->moved_bytes, bytes);
}

/*
 * Without a recorded open it is a descriptor that was open before the trace began or that a process got from its parent,
 * or none but a mapping, which stays when its descriptor is closed.
 */
void moment_use(struct file *file, const struct moment *moment, uint8_t class)
{
	if (moment->opens)
		return;
	file->classes |= (uint8_t)(1u << class);
	if (moment->unlinked)
		file->used_after_unlink = true;
}

void moment_nameless(struct file *file, struct moment *moment, bool nameless)
{
	if (nameless || file->nameless)
		moment->unlinked = nameless;
	file->nameless = nameless;
}

void moment_resize(struct file *file, struct moment *moment, uint64_t size_bytes)
{
	file->changes_size |= size_bytes != moment->size_bytes;
	moment->resized = true;
	moment->size_bytes = size_bytes;
	room_cut(&moment->room, size_bytes);
}

void moment_allocate(const struct fileop_record *op, struct file *file, struct moment *moment)
{
	uint32_t mode = op->flags >> 16;
	uint64_t end = add_saturating(op->argument, op->length);

	file->changes_size = true;
	if (file->block_device)
		return;
	room_allocate(&moment->room, mode, op->argument, op->length);
	if (!(mode & ~FALLOC_FL_ZERO_RANGE) && end > moment->size_bytes)
		moment->size_bytes = end;
}

/* SPDX-License-Identifier: Apache-2.0 OR BSD-2-Clause */
/*
 * Calls that move no data but that a replay has to repeat -> FILEOP records.
 */
#ifndef FLEXTRACE_RECORD_FILEOP_BPF_H
#define FLEXTRACE_RECORD_FILEOP_BPF_H

#include "file_identity.bpf.h"
#include "io_flags.bpf.h"
#include "processor_time.bpf.h"
#include "wake_ups.bpf.h"

enum {
	ADVICE_WILLNEED = 3, /* POSIX_FADV_WILLNEED: what readahead(2) is */
	DESCRIPTOR_DIGITS_MAX = 7,
};

static __always_inline struct fileop_record *reserve_fileop(struct task_struct *task, struct task_state *state,
							    __s64 result, __u64 now_ns)
{
	send_wake(task, state, state->id, now_ns);
	struct fileop_record *record =
		reserve_event_of(state->file, sizeof(struct fileop_record), RECORD_FILEOP, now_ns);
	if (!record)
		return NULL;
	__builtin_memset(record, 0, sizeof(*record));
	record->kind = RECORD_FILEOP;
	record->source = SOURCE_SYSCALL;
	record->processor_share = state->processor_share;
	record->flags = descriptor_io_flags(state->descriptor_flags);
	record->start_ns = state->start_ns;
	record->duration_ns = now_ns - state->start_ns;
	record->thread = task->pid;
	record->process = task->tgid;
	record->file = state->file;
	record->result = result;
	record->id = state->id;
	note_call_end(state, state->id, now_ns);
	return record;
}

/* Calls on a descriptor. */
static __always_inline void send_descriptor_operation(struct pt_regs *regs, struct task_struct *task,
						      struct task_state *state, __s64 result, __u64 now_ns)
{
	struct fileop_record *record = reserve_fileop(task, state, result, now_ns);
	if (!record)
		return;
	const struct inode *inode = (const struct inode *)state->inode_pointer;
	if (mode_of(inode) == MODE_DIRECTORY)
		record->flags |= IO_DIRECTORY;
	switch (state->call) {
	case CALL_CLOSE:
		record->op = FILEOP_CLOSE;
		record->argument = regs->di;
		break;
	case CALL_FSYNC:
		record->op = FILEOP_FSYNC;
		record->flags |= run_delay_io_flags(task, state, now_ns);
		break;
	case CALL_FDATASYNC:
		record->op = FILEOP_FDATASYNC;
		record->flags |= run_delay_io_flags(task, state, now_ns);
		break;
	case CALL_SYNCFS:
		record->op = FILEOP_SYNCFS;
		break;
	case CALL_SYNC_FILE_RANGE:
		record->op = FILEOP_SYNC_FILE_RANGE;
		record->argument = regs->si;
		record->length = regs->dx;
		record->flags |= (__u32)regs->r10 << 16;
		break;
	case CALL_FTRUNCATE:
		record->op = FILEOP_TRUNCATE;
		record->argument = regs->si;
		break;
	case CALL_FALLOCATE:
		record->op = FILEOP_FALLOCATE;
		record->argument = regs->dx;
		record->length = regs->r10;
		record->flags |= (__u32)regs->si << 16;
		break;
	case CALL_FADVISE:
		record->op = FILEOP_FADVISE;
		record->argument = regs->si;
		record->length = regs->dx;
		record->flags |= (__u32)regs->r10 << 16;
		break;
	case CALL_READAHEAD:
		record->op = FILEOP_FADVISE;
		record->argument = regs->si;
		record->length = regs->dx;
		record->flags |= ADVICE_WILLNEED << 16;
		break;
	}
	submit_event(record);
}

/* Flags and mode of an open, as its record carries them. */
struct open_request {
	__u64 flags;
	__u64 mode;
};

/* An open that returned this descriptor, or an error. */
static __always_inline void send_open(struct task_struct *task, struct task_state *state, struct open_request how,
				      __s64 result, __u64 now_ns)
{
	__u32 flags = 0;
	if (result >= 0) {
		struct file *file = file_of_descriptor(task, result);
		if (!file) {
			/* Another thread has closed it already: nobody knows which file it was. */
			count_loss(RECORD_FILEOP, now_ns);
			return;
		}
		forget_namesake(file);
		/* Directories are opened to be synced (SQLite does so after each unlink) and to be listed. */
		state->file = identify_file(file, IDENTIFY_DIRECTORIES | IDENTIFY_OPENED, state->start_ns);
		if (!state->file)
			return;
		if (was_created(file))
			flags |= IO_CREATED;
		if (mode_of(BPF_CORE_READ(file, f_inode)) == MODE_DIRECTORY)
			flags |= IO_DIRECTORY;
	} else if (has_file_filter()) {
		count_skip(SKIP_FILTERED);
		return;
	}
	if (how.flags & OPEN_TRUNCATE)
		flags |= IO_TRUNCATED;
	state->descriptor_flags = how.flags;
	struct fileop_record *record = reserve_fileop(task, state, result < 0 ? result : 0, now_ns);
	if (!record)
		return;
	record->op = FILEOP_OPEN;
	record->flags |= flags;
	record->argument = result < 0 ? 0 : result;
	record->length = how.flags & (OPEN_CREATE | OPEN_TMPFILE) ? how.mode : 0;
	submit_event(record);
}

static __always_inline struct open_request open_request_of(struct pt_regs *regs, __u32 call)
{
	struct open_request how = {};
	switch (call) {
	case CALL_OPEN:
		how.flags = regs->si;
		how.mode = regs->dx;
		break;
	case CALL_CREAT:
		how.flags = OPEN_CREATE | OPEN_TRUNCATE;
		how.mode = regs->si;
		break;
	case CALL_OPENAT:
		how.flags = regs->dx;
		how.mode = regs->r10;
		break;
	case CALL_OPENAT2: /* struct open_how begins with flags and mode */
		bpf_probe_read_user(&how, sizeof(how), (const void *)regs->dx);
		break;
	}
	return how;
}

/* The descriptor that a path means which is of the form that open(2) gives for O_TMPFILE; -1 = none. */
static __always_inline int descriptor_of_path(const char *path)
{
	const char prefix[] = "/proc/self/fd/";
	const char *digits = path + sizeof(prefix) - 1;
	int descriptor = 0;
	for (int i = 0; i < (int)sizeof(prefix) - 1; i++)
		if (path[i] != prefix[i])
			return -1;
	for (int i = 0; i <= DESCRIPTOR_DIGITS_MAX; i++) {
		if (!digits[i])
			return i ? descriptor : -1;
		if (digits[i] < '0' || digits[i] > '9')
			return -1;
		descriptor = descriptor * 10 + digits[i] - '0';
	}
	return -1;
}

enum argument_sent {
	ARGUMENT_HAS_NO_ROOM,
	ARGUMENT_UNREADABLE,
	ARGUMENT_SENT,
};

/*
 * Where a path argument starts if it is relative, and the path. The kernel has read it, so it is mostly still there. One of a
 * descriptor is told as that of its file: the recorder would find its own.
 */
__weak int send_argument(int directory, __u64 text, __u32 role, __u64 now_ns)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u8 directory_role = role == NAME_ARGUMENT ? NAME_DIRECTORY : NAME_NEW_DIRECTORY;
	char first = 0;
	bpf_probe_read_user(&first, sizeof(first), (const void *)text);
	if (first != '/') {
		struct file *file = directory == AT_FDCWD ? NULL : file_of_descriptor(task, directory);
		struct fs_struct *fs = BPF_CORE_READ(task, fs);
		if ((directory == AT_FDCWD || file) &&
		    !send_path(file ? &file->f_path : &fs->pwd, directory_role, now_ns))
			return ARGUMENT_HAS_NO_ROOM;
	}
	struct ring_name *name = try_reserve_event(sizeof(struct ring_name));
	if (!name)
		return ARGUMENT_HAS_NO_ROOM;
	long bytes = bpf_probe_read_user_str(name->text, NAME_BYTES_MAX, (const void *)text);
	if (bytes <= 0) {
		bpf_ringbuf_discard(name, BPF_RB_NO_WAKEUP);
		return ARGUMENT_UNREADABLE;
	}
	int descriptor = descriptor_of_path(name->text);
	struct file *named = descriptor < 0 ? NULL : file_of_descriptor(task, descriptor);
	if (named) {
		bpf_ringbuf_discard(name, BPF_RB_NO_WAKEUP);
		return send_path(&named->f_path, role, now_ns) ? ARGUMENT_SENT : ARGUMENT_HAS_NO_ROOM;
	}
	name->start = 0;
	name->bytes = bytes - 1;
	finish_name(name, role, 0, task, now_ns);
	submit_for_lookup(name);
	return ARGUMENT_SENT;
}

/* What a call on names does, and where its names stand. */
struct name_request {
	__u64 text; /* of the existing name; 0 = none */
	__u64 new_text; /* of the name that is made; 0 = none */
	__u64 argument;
	__u64 length;
	int directory;
	int new_directory;
	__u32 op; /* enum fileop */
};

static __always_inline void name_request_of(struct pt_regs *regs, __u32 call, struct name_request *request)
{
	request->directory = request->new_directory = AT_FDCWD;
	switch (call) {
	case CALL_UNLINK:
	case CALL_RMDIR:
		request->op = call == CALL_RMDIR ? FILEOP_RMDIR : FILEOP_UNLINK;
		request->text = regs->di;
		break;
	case CALL_UNLINKAT:
		request->op = regs->dx & AT_REMOVEDIR ? FILEOP_RMDIR : FILEOP_UNLINK;
		request->directory = regs->di;
		request->text = regs->si;
		break;
	case CALL_RENAME:
	case CALL_LINK:
		request->op = call == CALL_LINK ? FILEOP_LINK : FILEOP_RENAME;
		request->text = regs->di;
		request->new_text = regs->si;
		break;
	case CALL_RENAMEAT:
	case CALL_RENAMEAT2:
	case CALL_LINKAT:
		request->op = call == CALL_LINKAT ? FILEOP_LINK : FILEOP_RENAME;
		request->directory = regs->di;
		request->text = regs->si;
		request->new_directory = regs->dx;
		request->new_text = regs->r10;
		request->length = call == CALL_RENAMEAT2 ? regs->r8 : 0;
		break;
	case CALL_TRUNCATE:
		request->op = FILEOP_TRUNCATE;
		request->text = regs->di;
		request->argument = regs->si;
		break;
	case CALL_MKDIR:
		request->op = FILEOP_MKDIR;
		request->new_text = regs->di;
		request->length = regs->si;
		break;
	case CALL_MKDIRAT:
		request->op = FILEOP_MKDIR;
		request->new_directory = regs->di;
		request->new_text = regs->si;
		request->length = regs->dx;
		break;
	case CALL_SYMLINK:
		request->op = FILEOP_SYMLINK;
		request->new_text = regs->si;
		break;
	case CALL_SYMLINKAT:
		request->op = FILEOP_SYMLINK;
		request->new_directory = regs->si;
		request->new_text = regs->dx;
		break;
	}
}

/*
 * The names first, so that the recorder has them when the record comes (drain.c). Where one finds no room, or can no longer be
 * read, the operation is lost, once, and the recorder drops what it has of the names. One that failed has changed nothing, and
 * needs no name.
 */
static __always_inline void send_name_operation(struct task_struct *task, struct task_state *state,
						const struct name_request *request, __s64 result, __u64 now_ns)
{
	int sent = ARGUMENT_SENT;
	if (request->text)
		sent = send_argument(request->directory, request->text, NAME_ARGUMENT, now_ns);
	if (sent == ARGUMENT_SENT && request->new_text)
		sent = send_argument(request->new_directory, request->new_text, NAME_NEW_ARGUMENT, now_ns);
	if (sent == ARGUMENT_HAS_NO_ROOM) {
		count_full_ring(RECORD_FILEOP, now_ns);
		return;
	}
	if (sent == ARGUMENT_UNREADABLE && result >= 0) {
		count_loss(RECORD_FILEOP, now_ns);
		return;
	}
	struct fileop_record *record = reserve_fileop(task, state, result, now_ns);
	if (!record)
		return;
	record->op = request->op;
	record->argument = request->argument;
	record->length = request->length;
	submit_event(record);
}

static __always_inline void send_sync(struct task_struct *task, struct task_state *state, __s64 result, __u64 now_ns)
{
	struct fileop_record *record = reserve_fileop(task, state, result, now_ns);
	if (!record)
		return;
	record->op = FILEOP_SYNCFS;
	submit_event(record);
}

struct mapping_found {
	__u64 address;
	__u64 offset;
	__u64 now_ns;
	__u32 file;
};

static long take_mapping(struct task_struct *task, struct vm_area_struct *area, void *context)
{
	struct mapping_found *found = context;
	struct file *file = area->vm_file;
	if (file) {
		found->file = identify_file(file, 0, found->now_ns);
		found->offset = found->address - area->vm_start + area->vm_pgoff * PAGE_BYTES;
	}
	return 0;
}

static __always_inline void send_msync(struct pt_regs *regs, struct task_struct *task, struct task_state *state,
				       __s64 result, __u64 now_ns)
{
	struct mapping_found found = {.address = regs->di, .now_ns = now_ns};
	if (bpf_find_vma(task, regs->di, take_mapping, &found, 0) == MAPPING_LOCKED)
		count_loss(RECORD_FILEOP, now_ns);
	if (!found.file)
		return;
	state->file = found.file;
	struct fileop_record *record = reserve_fileop(task, state, result, now_ns);
	if (!record)
		return;
	record->op = FILEOP_MSYNC;
	record->argument = found.offset;
	record->length = regs->si;
	record->flags |= (__u32)regs->dx << 16;
	submit_event(record);
}

#endif /* FLEXTRACE_RECORD_FILEOP_BPF_H */

/* SPDX-License-Identifier: Apache-2.0 OR BSD-2-Clause */
/*
 * System calls that move data -> IO records: the read and write families, and the calls between two files.
 */
#ifndef FLEXTRACE_RECORD_IO_BPF_H
#define FLEXTRACE_RECORD_IO_BPF_H

#include "file_position.bpf.h"
#include "page_cache.bpf.h"
#include "processor_time.bpf.h"
#include "wake_ups.bpf.h"

static __always_inline __u64 call_asked_bytes(struct pt_regs *regs, __u32 call)
{
	return call >= CALL_READV && call <= CALL_DATA_LAST ? vector_bytes(regs->si, regs->dx) : regs->dx;
}

enum {
	ERROR_BAD_DESCRIPTOR = -9, /* EBADF: also a descriptor that is not open for this direction */
	ERROR_INVALID = -22, /* EINVAL */
	ERROR_NOT_SEEKABLE = -29, /* ESPIPE */
	RESULT_MAX = 0x7fffffff, /* of io_record */
};

/*
 * The kernel's own rules for /proc/PID/io (fs/read_write.c): a call counts once its descriptor, position and direction
 * have been found good, whatever becomes of it; readv and its kin count without a good descriptor, too.
 */
static __always_inline bool kernel_counts(struct pt_regs *regs, __u32 call, __s64 done)
{
	bool named_position = call == CALL_PREAD || call == CALL_PWRITE || call >= CALL_PREADV;
	/* The position of the descriptor: then it is a readv or writev. */
	if (call >= CALL_PREADV2 && regs->r10 == (unsigned long)-1)
		named_position = false;
	if (done >= 0)
		return true;
	if (done == ERROR_INVALID && named_position && (__s64)regs->r10 < 0)
		return false;
	return call >= CALL_READV || (done != ERROR_BAD_DESCRIPTOR && done != ERROR_NOT_SEEKABLE);
}

static __always_inline void account_direction(bool reads, __s64 done)
{
	struct account *account = account_of(ACCOUNT_SEEN);
	if (!account)
		return;
	__u64 bytes = done > 0 ? done : 0;
	if (reads) {
		account->rchar += bytes;
		account->syscr++;
	} else {
		account->wchar += bytes;
		account->syscw++;
	}
}

/*
 * Whether a direct read has gone through the page cache all the same, as btrfs does with what it has compressed, or was of holes
 * only: it has brought in pages, or had no device read anything.
 */
static __always_inline bool is_served_by_cache(const struct task_state *state)
{
	struct task_struct *task = bpf_get_current_task_btf();
	return is_read_by_bios(state, (struct inode *)state->inode_pointer) &&
	       (state->brought_id == state->id || task->ioac.read_bytes == state->read_bytes_before);
}

/* Of a read, as the record has it. */
static __always_inline __u32 missed_bytes(const struct task_state *state, __s64 done)
{
	if (done <= 0)
		return 0;
	if (state->descriptor_flags & OPEN_DIRECT && !state->in_memory && !is_served_by_cache(state))
		return done;
	return take_missed(state, done);
}

enum {
	MAPPING_SHARED = 8, /* VM_SHARED */
	MAPPING_SAMPLE = 64, /* one in so many looks its mapping up anew */
};

/* Called by bpf_find_vma, which hands on what lies on the stack. */
static long note_memory(struct task_struct *task, struct vm_area_struct *area, struct task_state **state)
{
	(*state)->memory = area->vm_start;
	(*state)->memory_bytes = area->vm_end - area->vm_start;
	(*state)->memory_flags = area->vm_flags & MAPPING_SHARED ? IO_SHARED_MEMORY : 0;
	return 0;
}

static __always_inline __u64 memory_address(struct pt_regs *regs, __u32 call)
{
	return call >= CALL_READV ? first_of_vector(regs->si) : regs->si;
}

/* Of a read: whether what it went to is still in the processor's caches. Two, as GNU sort reads here and there in turns. */
static __noinline __u32 reused_memory_flag(struct pt_regs *regs, __u32 call, struct task_state *state)
{
	__u64 address = memory_address(regs, call);
	bool reused = address == state->read_addresses[0] || address == state->read_addresses[1];
	state->read_addresses[1] = state->read_addresses[0];
	state->read_addresses[0] = address;
	return reused ? IO_REUSED_MEMORY : 0;
}

/*
 * Of a write, or of a call with page faults: how many it had, as io_record.flags has them, and whether its memory is
 * shared; not known, and so not said, where the mappings are being changed meanwhile (bpf_find_vma waits for no lock). A
 * write is mostly from the mapping of the one before, which is looked up now and then, as it may have been replaced. Not
 * inline, since the stack that sys_exit and all that it calls may have together (512 bytes) is used up on Linux 6.1.
 */
static __noinline __u32 memory_io_flags(struct pt_regs *regs, __u32 call, struct task_struct *task,
					struct task_state *state)
{
	__u64 faults = task->min_flt - state->faults_before;
	__u32 faults_flags = (faults < IO_FAULTS_MAX ? (__u32)faults : IO_FAULTS_MAX) << IO_FAULTS_SHIFT;
	__u64 address = memory_address(regs, call);
	bool known = address - state->memory < state->memory_bytes && state->id % MAPPING_SAMPLE != 1;
	if (faults || !known) {
		state->memory_bytes = 0;
		state->memory_flags = 0;
		bpf_find_vma(task, address, note_memory, &state, 0);
	}
	return state->memory_flags | faults_flags;
}

/* At the entry of a call of the read or write family. */
static __always_inline void data_call_begins(struct pt_regs *regs, struct task_struct *task, struct task_state *state,
					     __u32 call)
{
	note_position_rule(regs, state, call);
	state->asked_bytes = call_asked_bytes(regs, call);
	if (state->asked_bytes < filter_size_bytes_min) {
		count_skip(SKIP_FILTERED);
		state->file = 0;
		return;
	}
	state->id = next_operation_id(state);
	state->faults_before = task->min_flt;
	state->read_bytes_before = task->ioac.read_bytes;
	state->entry_flags = call_reads(call) ? 0 : ctime_io_flag(ctime_nsec_of(state->inode_pointer));
	operation_begins();
	note_call_start(task, state, bpf_ktime_get_ns());
	/* Read after the start is taken, so that whoever moves it later overlaps this call in time. */
	state->position = uses_position(state) ? position_before(state) : (__s64)regs->r10;
}

/* At the exit of any call that moves data, recorded or not. */
static __always_inline void account_call(struct pt_regs *regs, __u32 call, __s64 done)
{
	if (call > CALL_DATA_LAST) {
		/* splice(2) is charged to nobody; sendfile and copy_file_range are, on both sides (fs/read_write.c). */
		if (call == CALL_SPLICE || done == ERROR_BAD_DESCRIPTOR || done == ERROR_INVALID)
			return;
		/* One that finds nothing to copy, or may not copy between these two, is not counted. */
		if (call == CALL_COPY_FILE_RANGE && done <= 0)
			return;
		account_direction(true, done);
		account_direction(false, done);
	} else if (kernel_counts(regs, call, done)) {
		account_direction(call_reads(call), done);
	}
}

/* At its exit. */
static __always_inline void data_call_ends(struct pt_regs *regs, struct task_struct *task, struct task_state *state,
					   __s64 done)
{
	__u32 call = state->call;
	bool reads = call_reads(call);
	if (!state->id)
		return;
	/* Read before the end is taken, so that whoever moved it before overlaps this call in time. */
	__u32 width = position_width(state, done);
	__u64 now_ns = bpf_ktime_get_ns();
	operation_ends(reads ? IO_READ : IO_WRITE, SOURCE_SYSCALL, done);

	send_wake(task, state, state->id, now_ns);
	struct io_record *record = reserve_event_of(state->file, sizeof(struct io_record), RECORD_IO, now_ns);
	if (!record)
		return;
	__u32 flags = state->entry_flags | descriptor_io_flags(state->descriptor_flags) |
		      (reads && task->min_flt == state->faults_before ? 0 : memory_io_flags(regs, call, task, state)) |
		      (reads ? reused_memory_flag(regs, call, state) : 0) | run_delay_io_flags(task, state, now_ns);
	if (call == CALL_PREADV2 || call == CALL_PWRITEV2)
		flags |= call_io_flags(regs->r9);
	if (!reads)
		flags = state->appends ? flags | IO_APPEND : flags & ~IO_APPEND;
	record->kind = RECORD_IO;
	record->op = reads ? IO_READ : IO_WRITE;
	record->source = SOURCE_SYSCALL;
	record->processor_share = state->processor_share;
	record->flags = flags | (state->positioned ? IO_POSITIONED : 0) | (call >= CALL_READV ? IO_VECTORED : 0) |
			(width ? IO_OFFSET_INFERRED : 0);
	record->start_ns = state->start_ns;
	record->duration_ns = now_ns - state->start_ns;
	record->thread = task->pid;
	record->process = task->tgid;
	record->file = state->file;
	/* A vector is in memory once the kernel has read it, but may be gone when a call has taken long. */
	if (call >= CALL_READV) {
		__u64 bytes = vector_bytes(regs->si, regs->dx);
		state->asked_bytes = bytes > state->asked_bytes ? bytes : state->asked_bytes;
	}
	record->asked_bytes = saturated_u32(state->asked_bytes);
	record->offset = state->position;
	record->result = done;
	/* Until the recorder has resolved an inferred offset this carries the width of its interval. */
	record->missed_bytes = width ? width : reads ? missed_bytes(state, done) : TRACE_NOT_MEASURED_U32;
	record->id = state->id;
	submit_event(record);
	note_call_end(state, state->id, now_ns);
}

/* Arguments of sendfile, splice and copy_file_range. */
struct two_files {
	__u32 source_descriptor, target_descriptor;
	__u64 source_position, target_position; /* addresses of offsets, 0 = the position of the descriptor */
	__u64 asked_bytes;
};

static __always_inline void two_files_of(struct pt_regs *regs, __u32 call, struct two_files *files)
{
	if (call == CALL_SENDFILE) {
		*files = (struct two_files){.source_descriptor = regs->si,
					    .target_descriptor = regs->di,
					    .source_position = regs->dx,
					    .asked_bytes = regs->r10};
		return;
	}
	*files = (struct two_files){.source_descriptor = regs->di,
				    .source_position = regs->si,
				    .target_descriptor = regs->dx,
				    .target_position = regs->r10,
				    .asked_bytes = regs->r8};
}

static __always_inline __s64 position_at(struct file *file, __u64 address)
{
	__s64 position = 0;
	if (!address)
		return read_field(file, f_pos);
	bpf_probe_read_user(&position, sizeof(position), (const void *)address);
	return position;
}

static __always_inline void two_files_call_begins(struct pt_regs *regs, struct task_struct *task,
						  struct task_state *state, __u32 call, __u64 now_ns)
{
	struct two_files files;
	two_files_of(regs, call, &files);
	struct file *source = file_of_descriptor(task, files.source_descriptor);
	struct file *target = file_of_descriptor(task, files.target_descriptor);
	state->file_pointer = source && target ? (__u64)source : 0;
	if (!state->file_pointer)
		return; /* the call will say EBADF, mostly */
	if (files.asked_bytes < filter_size_bytes_min) {
		count_skip(SKIP_FILTERED);
		return;
	}
	state->asked_bytes = files.asked_bytes;
	state->file = identify_file(source, 0, now_ns);
	state->target_file = identify_file(target, 0, now_ns);
	state->read_bytes_before = task->ioac.read_bytes;
	note_call_start(task, state, bpf_ktime_get_ns());
	if (state->file) {
		state->inode_pointer = (__u64)BPF_CORE_READ(source, f_mapping, host);
		state->in_memory = is_in_memory((struct inode *)state->inode_pointer);
		state->descriptor_flags = read_field(source, f_flags);
		state->positioned = files.source_position != 0;
		state->position = position_at(source, files.source_position);
		state->id = next_operation_id(state);
		operation_begins();
	}
	if (state->target_file) {
		state->target_file_pointer = (__u64)target;
		state->target_flags = descriptor_io_flags(read_field(target, f_flags)) |
				      (files.target_position ? IO_POSITIONED : 0) |
				      ctime_io_flag(ctime_nsec_of((__u64)BPF_CORE_READ(target, f_mapping, host)));
		state->target_position = position_at(target, files.target_position);
		state->target_id = next_operation_id(state);
		operation_begins();
	}
}

static __always_inline void send_one_side(struct task_struct *task, struct task_state *state, __u8 op, __s64 done,
					  __u64 now_ns)
{
	bool reads = op == IO_READ;
	__u64 id = reads ? state->id : state->target_id;
	/* A file system whose server copies may copy more than a record can tell. */
	if (done > RESULT_MAX) {
		count_loss(RECORD_IO, now_ns);
		done = RESULT_MAX;
	}
	send_wake(task, state, id, now_ns);
	__u32 file = reads ? state->file : state->target_file;
	struct io_record *record = reserve_event_of(file, sizeof(struct io_record), RECORD_IO, now_ns);
	if (!record)
		return;
	record->kind = RECORD_IO;
	record->op = op;
	record->source = SOURCE_SPLICE;
	record->processor_share = state->processor_share;
	record->flags = reads ? descriptor_io_flags(state->descriptor_flags) | (state->positioned ? IO_POSITIONED : 0)
			      : state->target_flags;
	record->start_ns = state->start_ns;
	record->duration_ns = now_ns - state->start_ns;
	record->thread = task->pid;
	record->process = task->tgid;
	record->file = file;
	record->asked_bytes = saturated_u32(state->asked_bytes);
	record->offset = reads ? state->position : state->target_position;
	record->result = done;
	record->missed_bytes = reads ? missed_bytes(state, done) : TRACE_NOT_MEASURED_U32;
	record->id = id;
	submit_event(record);
	note_call_end(state, id, now_ns);
}

/* Where a side began whose offset the caller keeps, which the kernel has moved. noted: the same, as read at the entry. */
static __always_inline __s64 position_at_entry(__u64 address, __s64 noted, __s64 done)
{
	__s64 moved;
	if (!address || done <= 0 || bpf_probe_read_user(&moved, sizeof(moved), (const void *)address))
		return noted;
	return moved - done;
}

/*
 * At the entry the offsets may be on a page that is not there yet. Not inline, as the stack of sys_exit is used up on Linux
 * 6.1.
 */
static __noinline int find_positions(struct pt_regs *regs, struct task_state *state, __s64 done)
{
	struct two_files files;
	two_files_of(regs, state->call, &files);
	state->position = position_at_entry(files.source_position, state->position, done);
	state->target_position = position_at_entry(files.target_position, state->target_position, done);
	return 0;
}

static __always_inline void two_files_call_ends(struct pt_regs *regs, struct task_struct *task,
						struct task_state *state, __s64 done)
{
	__u64 now_ns = bpf_ktime_get_ns();
	find_positions(regs, state, done);
	if (state->id) {
		operation_ends(IO_READ, SOURCE_SPLICE, done);
		send_one_side(task, state, IO_READ, done, now_ns);
	}
	if (state->target_id) {
		operation_ends(IO_WRITE, SOURCE_SPLICE, done);
		send_one_side(task, state, IO_WRITE, done, now_ns);
	}
}

#endif /* FLEXTRACE_RECORD_IO_BPF_H */

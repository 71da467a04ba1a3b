// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * System calls of traced threads -> IO, FILEOP, FILE and TASK records.
 *
 * sys_enter remembers what only the entry knows (time, file, position), sys_exit reads the arguments again (they are
 * still in pt_regs), adds the result and sends the records. A thread that is not traced leaves after one look.
 */
#define FLEXTRACE_DIRECT_READS
#include "aio.bpf.h"
#include "announce.bpf.h"
#include "async_operation.bpf.h"
#include "exec.bpf.h"
#include "known_file.bpf.h"
#include "mapped_file.bpf.h"
#include "record_fileop.bpf.h"
#include "record_io.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Which call each system call number is (syscall_table.c): filled by the recorder before load. */
const volatile __u8 call_of_syscall[SYSCALL_NUMBERS_MAX] = {};

enum {
	PROTECTION_EXECUTE = 4, /* PROT_EXEC */
	MAPPING_ANONYMOUS = 0x20, /* MAP_ANONYMOUS: the descriptor means nothing */
	IOCTL_CLONE = 0x40049409, /* FICLONE and FICLONERANGE (linux/fs.h) */
	IOCTL_CLONE_RANGE = 0x4020940d,
	RESULT_RESTART_FIRST = -516, /* -ERESTART_RESTARTBLOCK .. -ERESTARTSYS: the call will be entered again */
	RESULT_RESTART_LAST = -512,
};

/* Enters the file of a descriptor into the running operation. */
static __always_inline void take_file(struct task_struct *task, struct task_state *state, __u32 descriptor, __u32 how)
{
	struct file *file = file_of_descriptor(task, descriptor);
	state->file_pointer = (__u64)file;
	if (!file)
		return; /* the call will say EBADF, mostly */
	struct known_file *known = known_file_at(state, descriptor);
	if (!known)
		return;
	know_file(known, file, how);
	state->descriptor_flags = read_field(file, f_flags);
	state->file = state->descriptor_flags & OPEN_PATH ? 0 : known->file;
	state->file_inode_pointer = known->inode_pointer;
	state->inode_pointer = known->data_inode_pointer;
	state->in_memory = known->in_memory;
	state->position_lock = (__u64)file + bpf_core_field_offset(struct file, f_pos_lock);
}

/*
 * At the entry of mmap, which is no operation: what it reads ahead of all faults is that of faults. It may fault in all pages
 * itself (MAP_POPULATE).
 */
static __always_inline void take_mapped_file(struct pt_regs *regs, struct task_struct *task, struct task_state *state)
{
	struct file *file = regs->r10 & MAPPING_ANONYMOUS ? NULL : file_of_descriptor(task, regs->r8);
	if (!file)
		return;
	state->file = identify_file(file, 0, bpf_ktime_get_ns());
	state->inode_pointer = (__u64)BPF_CORE_READ(file, f_inode);
	note_mapped(state->file, regs->dx & PROTECTION_EXECUTE);
}

/* Calls in which each request is an operation of its own (aio.bpf.c, io_uring.bpf.c), the end of the process, and ioctl. */
static __always_inline void requests_call_begins(struct pt_regs *regs, __u32 call)
{
	if (call == CALL_IO_SUBMIT) {
		if (aio_submit_begins(regs->di, regs->si, regs->dx)) {
			async_process_looks();
			aio_submit_goes_on(regs->si, regs->dx);
		}
	} else if (call == CALL_IO_GETEVENTS) {
		aio_look(regs->di);
	} else if (call == CALL_IO_DESTROY) {
		aio_context_ends(regs->di);
	} else if (call == CALL_EXIT) {
		async_process_looks();
	}
}

static __always_inline void requests_call_ends(struct pt_regs *regs, __u32 call, __s64 result)
{
	if (call == CALL_IO_SUBMIT) {
		aio_submit_returned(regs->dx, result);
		aio_submit_ends(regs->di, regs->dx, result);
	} else if (call == CALL_IO_GETEVENTS) {
		aio_events_returned(regs->di, regs->r10, result);
	} else if (call == CALL_IO_URING_ENTER) {
		uring_submit_returned();
	} else if (call == CALL_IO_SETUP && !result) {
		aio_context_begins(regs->si);
	} else if (call == CALL_IOCTL && !result &&
		   ((__u32)regs->si == IOCTL_CLONE || (__u32)regs->si == IOCTL_CLONE_RANGE)) {
		count_skip(SKIP_CLONE);
	}
}

/* Not inline, as the stack of sys_enter is used up on Linux 6.1. */
static __noinline int x32_call_begins(unsigned long number)
{
	number -= X32_CALLS;
	if (number >= SYSCALL_NUMBERS_MAX || !(call_of_syscall[number] & CALL_IF_X32))
		return 0;
	struct task_struct *task = bpf_get_current_task_btf();
	if (may_be_traced(task) && bpf_task_storage_get(&tasks, task, NULL, 0))
		count_skip(SKIP_COMPAT);
	return 0;
}

SEC("tp_btf/sys_enter")
int BPF_PROG(sys_enter, struct pt_regs *regs, long number)
{
	if ((unsigned long)number >= SYSCALL_NUMBERS_MAX)
		return x32_call_begins(number);
	__u32 entry = call_of_syscall[number];
	if (!entry)
		return 0;
	struct task_struct *task = bpf_get_current_task_btf();
	if (!may_be_traced(task))
		return 0;
	struct task_state *state = bpf_task_storage_get(&tasks, task, NULL, 0);
	if (!state)
		return 0;

	__u32 call = entry & CALL_MASK;
	state->entered_ns = is_recording_sample(state->id_count + 1) ? bpf_ktime_get_ns() : 0;
	state->call = CALL_NONE;
	if (is_in_compat_call(task)) {
		if (entry & CALL_IF_COMPAT)
			count_skip(SKIP_COMPAT);
		return 0;
	}
	if (call == CALL_NONE)
		return 0;
	if (state->announced != ANNOUNCED)
		announce_by_call(task, state);
	if (state->request)
		async_switch(state, 0);
	state->call = call;
	state->file = 0;
	state->position_exact = 0;
	state->position_lock = 0;
	if (call <= CALL_DATA_LAST) {
		take_file(task, state, regs->di, 0);
		if (state->file) {
			data_call_begins(regs, task, state, call);
			note_recording_before(state);
		}
		return 0;
	}
	if (call <= CALL_DESCRIPTOR_LAST) {
		take_file(task, state, regs->di, IDENTIFY_DIRECTORIES);
		if (!state->file)
			return 0;
	} else if (call <= CALL_TWO_FILES_LAST) {
		two_files_call_begins(regs, task, state, call, bpf_ktime_get_ns());
		return 0;
	} else if (call >= CALL_EXIT) {
		requests_call_begins(regs, call);
		return 0;
	} else {
		/* The file of the call before is none of this one. */
		state->inode_pointer = 0;
		state->descriptor_flags = 0;
		if (call == CALL_MMAP) {
			take_mapped_file(regs, task, state);
			return 0;
		}
		if (call == CALL_EXEC) {
			exec_begins(task, state);
			async_process_looks();
		}
	}
	state->id = next_operation_id(state);
	note_call_start(task, state, bpf_ktime_get_ns());
	note_recording_before(state);
	return 0;
}

/* A function of its own, so that the stack of sys_exit stays small for what it calls besides. */
static __noinline int other_call_ends(struct pt_regs *regs, struct task_struct *task, struct task_state *state,
				      __s64 result)
{
	__u32 call = state->call;
	__u64 now_ns = bpf_ktime_get_ns();
	if (call <= CALL_DESCRIPTOR_LAST) {
		send_descriptor_operation(regs, task, state, result, now_ns);
	} else if (call <= CALL_OPEN_LAST) {
		send_open(task, state, open_request_of(regs, call), result, now_ns);
	} else if (call <= CALL_NAME_LAST) {
		struct name_request request = {};
		name_request_of(regs, call, &request);
		send_name_operation(task, state, &request, result, now_ns);
	} else if (call == CALL_SYNC) {
		send_sync(task, state, result, now_ns);
	} else if (call == CALL_MSYNC) {
		send_msync(regs, task, state, result, now_ns);
	} else if (call == CALL_MMAP) {
		if (result >= 0 || result < -4095)
			note_mapping(task, (struct inode *)state->inode_pointer, state->file, result);
	} else if (call == CALL_EXEC) {
		exec_ends(task, state); /* it failed, or exec.bpf.c would have ended it */
	}
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(sys_exit, struct pt_regs *regs, long result)
{
	unsigned long number = regs->orig_ax;
	if (number >= SYSCALL_NUMBERS_MAX || !(call_of_syscall[number] & CALL_MASK))
		return 0;
	struct task_struct *task = bpf_get_current_task_btf();
	if (!may_be_traced(task))
		return 0;
	struct task_state *state = bpf_task_storage_get(&tasks, task, NULL, 0);
	if (!state || state->call == CALL_NONE)
		return 0;
	__u32 call = state->call;
	if (is_data_call(call))
		account_call(regs, call, result);
	if (call >= CALL_EXIT)
		requests_call_ends(regs, call, result);
	else if (result >= RESULT_RESTART_FIRST && result <= RESULT_RESTART_LAST)
		abandon_call(state); /* it has moved nothing, and its second entry begins it anew */
	else if (call <= CALL_DATA_LAST)
		data_call_ends(regs, task, state, result);
	else if (is_between_files(call))
		two_files_call_ends(regs, task, state, result);
	else if (state->id || call == CALL_MMAP)
		other_call_ends(regs, task, state, result);
	/* Another thread has opened it meanwhile: nobody knows which file it was. */
	if (call <= CALL_TWO_FILES_LAST && !state->file_pointer && result >= 0)
		count_loss(is_data_call(call) ? RECORD_IO : RECORD_FILEOP, bpf_ktime_get_ns());
	if (state->request)
		async_switch(state, 0);
	note_recording_behind(state);
	state->call = CALL_NONE;
	state->id = 0;
	state->target_id = 0;
	return 0;
}

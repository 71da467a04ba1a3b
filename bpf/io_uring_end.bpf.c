// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A request of io_uring that has ended -> its IO or FILEOP record, and the start of the one behind it in a chain.
 */
#include "io_uring_request.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

enum { ERROR_CANCELLED = -125 }; /* ECANCELED */

/* Where the kernel has put the data of a request that did not say so. */
static __always_inline __u64 position_of_kernel(struct io_kiocb *request, const struct async_operation *operation,
						__s64 done)
{
	struct file *file = (struct file *)operation->file_pointer;
	if (done <= 0)
		return operation->appends ? BPF_CORE_READ(file, f_inode, i_size) : BPF_CORE_READ(file, f_pos);
	/* Taken by the kernel under the locks that it moves the data under, and moved forward by what was done. */
	if (operation->has_file)
		return BPF_CORE_READ((struct io_rw *)request, kiocb.ki_pos) - done;
	return BPF_CORE_READ(file, f_pos) - done;
}

static __always_inline void send_data(struct io_kiocb *request, struct async_operation *operation, __s64 result,
				      __u64 now_ns)
{
	__u64 offset = operation->position;
	add_file_flags(operation);
	if (offset == (__u64)POSITION_OF_KERNEL || operation->appends)
		offset = position_of_kernel(request, operation, result);
	operation_ends(operation->op, operation->source, result);
	/* Buffers that the kernel chooses from a pool may have no size asked for, either. */
	ask_for_result(operation, result);
	async_send_io(operation, offset, 0, result, now_ns);
}

/* The file that an open has given the program; false if there is none to record. */
static __always_inline bool find_opened(struct io_kiocb *request, struct async_operation *operation, __s64 result,
					__u64 now_ns)
{
	__u32 slot = BPF_CORE_READ((struct io_open *)request, file_slot);
	struct task_struct *task = bpf_get_current_task_btf();
	struct file *file = NULL;
	if (slot) {
		struct io_ring_ctx *ring = BPF_CORE_READ(request, ctx);
		file = registered_file(ring, slot == DESCRIPTOR_NONE ? result : slot - 1);
	} else {
		operation->argument = result;
		if ((__u32)task->tgid == operation->process)
			file = (struct file *)file_of_program(result);
	}
	if (!file) {
		/* It is closed already, or its process has gone: nobody knows which file it was. */
		count_loss(RECORD_FILEOP, now_ns);
		return false;
	}
	forget_namesake(file);
	if (!set_file(operation, file, result))
		return false;
	if (was_created(file))
		operation->flags |= IO_CREATED;
	return true;
}

static __always_inline void finish_name_of(const struct async_operation *operation, struct ring_name *name, __u8 role,
					   __u64 now_ns)
{
	finish_name(name, role, 0, (struct task_struct *)bpf_get_current_task(), now_ns);
	/* The thread of its record, and not the worker that ends it. */
	name->thread = operation->thread;
	name->process = operation->process;
	submit_for_lookup(name);
}

/* Where a relative name starts. 0 if there is no room for it. */
static __noinline int send_directory(const struct async_operation *operation, int directory, __u8 role, __u64 now_ns)
{
	struct file *file = directory == AT_FDCWD ? NULL : (struct file *)file_of_program(directory);
	if (directory != AT_FDCWD && !file)
		return 1;
	struct ring_name *name = try_reserve_event(sizeof(struct ring_name));
	if (!name)
		return 0;
	struct task_struct *viewer = (struct task_struct *)bpf_get_current_task();
	struct fs_struct *fs = BPF_CORE_READ(viewer, fs);
	write_path(name, file ? (__u64)&file->f_path : (__u64)&fs->pwd, (__u64)viewer);
	finish_name_of(operation, name, role, now_ns);
	return 1;
}

/* false if there is no room for the name and where it starts. */
static __always_inline bool send_kept_name(const struct async_operation *operation, const char *text, int directory,
					   __u8 role, __u64 now_ns)
{
	__u8 directory_role = role == NAME_NEW_ARGUMENT ? NAME_NEW_DIRECTORY : NAME_DIRECTORY;
	if (*text != '/' && !send_directory(operation, directory, directory_role, now_ns))
		return false;
	struct ring_name *name = try_reserve_event(sizeof(struct ring_name));
	if (!name)
		return false;
	long bytes = bpf_probe_read_kernel_str(name->text, NAME_BYTES_MAX, text);
	name->start = 0;
	name->bytes = bytes > 0 ? bytes - 1 : 0;
	finish_name_of(operation, name, role, now_ns);
	return true;
}

static __always_inline bool send_kept_names(const struct async_operation *operation, const struct request_names *names,
					    __u64 now_ns)
{
	return (!names->has_text ||
		send_kept_name(operation, names->text, operation->directory, NAME_ARGUMENT, now_ns)) &&
	       (!names->has_new_text ||
		send_kept_name(operation, names->new_text, operation->new_directory, NAME_NEW_ARGUMENT, now_ns));
}

static __always_inline void send_file_operation(struct io_kiocb *request, struct async_operation *operation,
						__s64 result, __u64 now_ns)
{
	__u64 key = (__u64)request;
	if (operation->op == FILEOP_OPEN) {
		if (result >= 0 && !find_opened(request, operation, result, now_ns))
			return;
		if (result < 0 && has_file_filter()) {
			count_skip(SKIP_FILTERED);
			return;
		}
		result = result < 0 ? result : 0;
	}
	struct request_names *names = bpf_map_lookup_elem(&request_names, &key);
	bool named = !names || send_kept_names(operation, names, now_ns);
	if (names)
		bpf_map_delete_elem(&request_names, &key);
	if (!named) {
		count_full_ring(RECORD_FILEOP, now_ns);
		return;
	}
	add_file_flags(operation);
	async_send_fileop(operation, result, now_ns);
}

/* The next request of the chain no longer waits. */
static __always_inline void start_next(struct io_kiocb *request, struct task_state *state, __u64 now_ns)
{
	if (!(BPF_CORE_READ(request, flags) & (ENTRY_LINK | ENTRY_HARDLINK)))
		return;
	__u64 next = (__u64)BPF_CORE_READ(request, link);
	struct async_operation *operation = next ? async_operation_at(next) : NULL;
	if (!operation)
		return;
	/* Opened by this request, closed by the next. */
	if (operation->kind == RECORD_FILEOP && operation->op == FILEOP_CLOSE && !operation->file_pointer)
		find_closed((struct io_kiocb *)next, operation);
	async_start_behind(operation, now_ns);
	if (state)
		async_switch(state, next);
}

/* Of a request that is on a file, in the end: whether it is one that is recorded. */
static __always_inline bool is_on_recorded_file(const struct async_operation *operation, __s64 result, __u64 now_ns)
{
	/* Opened since the request was submitted: nobody knows which file it was. */
	if (!operation->file_pointer && result >= 0)
		count_loss(operation->kind, now_ns);
	return operation->file;
}

/* Sends the record of a request, if it is one that is known. Verified once, by itself (file_identity.bpf.h). */
int uring_request_ends(__u64 pointer, __s64 result, bool goes_on)
{
	struct async_operation *operation = async_operation_at(pointer);
	if (!operation || __sync_val_compare_and_swap(&operation->phase, ASYNC_LIVE, ASYNC_ENDING) != ASYNC_LIVE)
		return 0;
	struct io_kiocb *request = (struct io_kiocb *)pointer;
	__u64 now_ns = bpf_ktime_get_ns();
	struct task_state *state = current_state();
	bool recorded = result != ERROR_CANCELLED;

	if (state && !goes_on && state->request != pointer)
		state = NULL;
	async_start(operation, operation->start_ns);
	struct file *file = recorded && operation->has_file ? BPF_CORE_READ(request, file) : NULL;
	if (file && (__u64)file != operation->file_pointer)
		set_file_of(state, operation, file, 0);
	if (recorded && (operation->has_file || operation->kind == RECORD_IO || operation->op == FILEOP_CLOSE))
		recorded = is_on_recorded_file(operation, result, now_ns);
	if (!recorded) {
		async_abandon(operation);
		bpf_map_delete_elem(&request_names, &pointer);
	} else if (operation->kind == RECORD_IO) {
		send_data(request, operation, result, now_ns);
	} else {
		send_file_operation(request, operation, result, now_ns);
	}
	if (state && state->request == pointer)
		async_switch(state, 0);
	start_next(request, state, now_ns);
	operation->phase = ASYNC_ENDED;
	return 0;
}

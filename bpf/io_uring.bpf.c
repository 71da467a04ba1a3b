// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Requests of io_uring as they are submitted, issued and completed -> records (io_uring_end.bpf.c), and which of them runs in
 * a thread.
 *
 * A request is entered when it is made from its submission queue entry and recorded when its completion is posted. Its
 * thread is the one that submitted it; of a ring with a submitting thread of the kernel (SQPOLL) the one that made the
 * ring, because a replay makes that kernel thread anew. Cancelled requests (-ECANCELED) have not been on a file and are
 * left out, as are those that the kernel refuses before it makes a request of them.
 *
 * The request that is submitted is issued at once, but for chains (issued when their last request is there, one after the
 * other), drained requests and those given to a worker; there the assignment of the file, the end of the request before
 * and the worker itself (async_operation.bpf.h) tell which one runs.
 */
#include "io_uring_request.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

enum {
	COMPLETION_IS_NOT_LAST = 1 << 1, /* IORING_CQE_F_MORE */
	CHAIN_MAX = 128, /* requests of a chain that are silent about their success */
};

static __always_inline bool describe_splice(struct io_kiocb *request, struct io_ring_ctx *ring,
					    struct async_operation *operation)
{
	struct io_splice *splice = (struct io_splice *)request;
	__u32 source_flags = BPF_CORE_READ(splice, flags);
	int source_descriptor = BPF_CORE_READ(splice, splice_fd_in), target_descriptor = request->cqe.fd;
	struct file *target = file_of_request(ring, request->flags & ENTRY_FIXED_FILE, target_descriptor);
	struct file *source = file_of_request(ring, source_flags & SPLICE_SOURCE_IS_REGISTERED, source_descriptor);
	operation->kind = RECORD_IO;
	operation->asked_bytes = BPF_CORE_READ(splice, len);
	/* One side is a pipe. */
	if (source && set_file(operation, source, source_descriptor)) {
		operation->op = IO_READ;
		operation->position = BPF_CORE_READ(splice, off_in);
	} else if (target && set_file(operation, target, target_descriptor)) {
		operation->op = IO_WRITE;
		operation->position = BPF_CORE_READ(splice, off_out);
	} else {
		operation->file_pointer = 0;
		return !source || !target; /* may be about to be opened, and be the file */
	}
	operation->flags |= operation->position == POSITION_OF_KERNEL ? 0 : IO_POSITIONED;
	return true;
}

/* Whether the request is one to record, as far as can be said now. */
static __always_inline bool describe(struct io_kiocb *request, struct io_ring_ctx *ring,
				     struct async_operation *operation, __u64 now_ns)
{
	__u8 opcode = request->opcode;
	struct names_of_request names = {};
	if (opcode == URING_SPLICE)
		return describe_splice(request, ring, operation);
	if (opcode == URING_CLOSE) {
		operation->kind = RECORD_FILEOP;
		operation->op = FILEOP_CLOSE;
		return find_closed(request, operation);
	}
	if (opcode == URING_OPENAT || opcode == URING_OPENAT2)
		return describe_open(request, operation);
	if (describe_name_operation(request, opcode, operation, &names))
		return keep_names(operation, (__u64)request, &names, now_ns);
	if (!describe_data(request, ring, opcode, operation) && !describe_file_operation(request, opcode, operation))
		return false;
	if (operation->kind == RECORD_IO && operation->asked_bytes < filter_size_bytes_min) {
		count_skip(SKIP_FILTERED);
		return false;
	}
	operation->has_file = 1;
	bool registered = request->flags & ENTRY_FIXED_FILE;
	struct file *file = file_of_request(ring, registered, request->cqe.fd);
	/* The request before it, or another thread, may be about to open it. */
	return !file || set_file(operation, file, request->cqe.fd);
}

/* How far a request has moved its own position. */
static __always_inline __s64 moved_bytes(__u64 request, const struct async_operation *operation)
{
	return BPF_CORE_READ((struct io_rw *)request, kiocb.ki_pos) - operation->position;
}

/* Of a silent request that has succeeded. 6.1 leaves in cqe.res of a write what an earlier request has left there. */
static __always_inline __s64 result_of_silent(__u64 request, const struct async_operation *operation)
{
	__s64 moved = moved_bytes(request, operation);
	if (operation->kind == RECORD_IO && moved > 0 && (__u64)moved <= operation->asked_bytes)
		return moved;
	return BPF_CORE_READ((struct io_kiocb *)request, cqe.res);
}

/* One step back in a chain. */
static long end_if_silent(__u32 step, __u64 *request)
{
	struct async_operation *operation = *request ? async_operation_at(*request) : NULL;
	if (!operation)
		return 1;
	__u64 previous = operation->previous;
	if (operation->silent)
		uring_request_ends(*request, result_of_silent(*request, operation), true);
	*request = previous;
	return 0;
}

/* Ends requests of a chain that were silent about their success, when one behind them begins or ends. */
int end_silent_before(__u64 request)
{
	bpf_loop(CHAIN_MAX, end_if_silent, &request, 0);
	return 0;
}

/*
 * Ends a silent request that has succeeded without leaving this thread: data has moved the request's position by what
 * its result says; all else is either done at once or given to a worker.
 */
static __always_inline void end_if_silently_done(__u64 request)
{
	struct async_operation *operation = request ? async_operation_at(request) : NULL;
	if (!operation || !operation->silent || operation->punted || !operation->started)
		return;
	struct io_kiocb *silent = (struct io_kiocb *)request;
	__s64 result = BPF_CORE_READ(silent, cqe.res);
	bool is_done = operation->kind != RECORD_IO || (result > 0 && moved_bytes(request, operation) == result);
	if (is_done)
		uring_request_ends(request, result, true);
}

int uring_submit_returned(void)
{
	struct task_state *state = current_state();
	if (state)
		end_if_silently_done(state->request);
	return 0;
}

/* Describes a request that is submitted now, behind the head of a chain if there is one; false if it is none to record. */
static __always_inline bool enter_request(struct io_kiocb *request, struct io_ring_ctx *ring,
					  struct async_operation *operation, struct task_state *state, __u64 head,
					  __u64 now_ns)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u32 entry_flags = request->flags;
	bool waits = head || (entry_flags & ENTRY_DRAIN) || BPF_CORE_READ(ring, defer_list.next) != &ring->defer_list;
	operation->source = SOURCE_IO_URING;
	operation->thread = task->pid;
	operation->process = task->tgid;
	operation->previous = head ? (__u64)BPF_CORE_READ(ring, submit_state.link.last) : 0;
	operation->silent = !!(entry_flags & ENTRY_SUCCESS_IS_SILENT);
	if (ring->flags & RING_HAS_THREAD)
		operation->thread = state->creator ? state->creator : task->tgid;
	if (waits)
		operation->flags = IO_LINKED;
	if (!describe(request, ring, operation, now_ns))
		return false;
	operation->id = next_operation_id(state);
	/* The work above is the recorder's, not the application's. */
	operation->start_ns = bpf_ktime_get_ns();
	if (!waits) {
		add_submission_flags(operation, state);
		async_start(operation, operation->start_ns);
	}
	if (operation->silent)
		note_async_process(state, operation->process);
	return true;
}

static __always_inline int request_submitted(struct io_kiocb *request)
{
	struct io_ring_ctx *ring = request->ctx;
	struct task_struct *task = bpf_get_current_task_btf();
	struct task_state *state = bpf_task_storage_get(&tasks, task, NULL, 0);
	if (!state)
		return 0;
	end_if_silently_done(state->request);
	struct async_key key = {.request = number_of(request)};
	struct async_operation *entry = bpf_map_lookup_elem(&async_operations, &key);
	/* A request that is used again has ended. */
	if (entry && entry->phase == ASYNC_LIVE)
		uring_request_ends(key.request, request->cqe.res, true);

	__u64 now_ns = bpf_ktime_get_ns();
	struct async_operation *operation = async_enter(&key, entry, now_ns);
	__u64 head = (__u64)BPF_CORE_READ(ring, submit_state.link.head);
	__u32 entry_flags = request->flags;
	bool live = false;
	if (operation)
		live = async_is_live(&key, operation, enter_request(request, ring, operation, state, head, now_ns),
				     now_ns);
	else
		count_loss(RECORD_IO, now_ns);
	/* A chain is issued from its head when its last request is there. */
	if (entry_flags & (ENTRY_LINK | ENTRY_HARDLINK))
		async_switch(state, 0);
	else if (head)
		async_switch(state, head);
	else
		async_switch_to(state, key.request, live ? operation : NULL);
	state->submitted = key.request;
	return 0;
}

SEC("tp_btf/io_uring_submit_req")
int BPF_PROG(io_uring_submit_req, struct io_kiocb *request)
{
	return request_submitted(request);
}

/* Its name before 6.4. */
SEC("tp_btf/io_uring_submit_sqe")
int BPF_PROG(io_uring_submit_sqe, struct io_kiocb *request)
{
	return request_submitted(request);
}

/* A request is issued, in whatever thread; it gets its file. Registered files come without this. */
SEC("tp_btf/io_uring_file_get")
int BPF_PROG(io_uring_file_get, struct io_kiocb *request, int descriptor)
{
	struct task_state *state = current_state();
	if (!state)
		return 0;
	__u64 pointer = number_of(request);
	struct async_operation *operation = async_operation_at(pointer);
	/* Up to 6.9 those behind the head of a chain get their files when they are submitted, long before they are issued. */
	bool is_prepared = state->submitted == pointer;
	state->submitted = 0;
	if (is_prepared && operation && operation->previous)
		return 0;
	if (operation && state->request == pointer && operation->started && operation->file_pointer &&
	    !operation->previous)
		return 0; /* all that can be said was said when it was submitted */
	if (operation) {
		__u64 now_ns = bpf_ktime_get_ns();
		if (operation->previous)
			end_silent_before(operation->previous);
		/* Of a splice it may be either side. */
		bool is_its = operation->has_file && !operation->file_pointer;
		struct file *file = is_its ? (struct file *)file_of_program(descriptor) : NULL;
		if (file)
			set_file(operation, file, descriptor);
		async_start_behind(operation, now_ns);
	}
	async_switch_to(state, pointer, operation);
	return 0;
}

SEC("tp_btf/io_uring_queue_async_work")
int BPF_PROG(io_uring_queue_async_work, struct io_kiocb *request)
{
	struct task_state *state = current_state();
	if (state && state->request == (__u64)request)
		async_switch(state, 0);
	struct async_operation *operation = async_operation_at((__u64)request);
	if (operation)
		operation->punted = 1;
	return 0;
}

static __always_inline int request_completed(void *request, __s64 result, __u32 completion_flags)
{
	__u64 pointer = number_of(request);
	struct async_operation *operation = pointer ? async_operation_at(pointer) : NULL;
	if (!operation || completion_flags & COMPLETION_IS_NOT_LAST)
		return 0;
	if (operation->previous)
		end_silent_before(operation->previous);
	return uring_request_ends(pointer, result, true);
}

SEC("tp_btf/io_uring_complete")
int BPF_PROG(io_uring_complete, struct io_ring_ctx *ring, void *request, struct io_uring_cqe *completion)
{
	return request_completed(request, completion->res, completion->flags);
}

/* The prototype of older kernels (6.1). */
SEC("tp_btf/io_uring_complete")
int BPF_PROG(io_uring_complete_scalars, void *ring, void *request, __u64 user_data, int result, unsigned int flags)
{
	return request_completed(request, result, flags);
}

/* A completion for which the ring of completions has no room, as the kernel tells of it. */
struct overflow {
	struct io_ring_ctx *ring;
	__u64 user_data;
	__s64 result;
	__u32 flags;
	__u64 request; /* that it is of; 0 = none that is known */
};

static long find_overflown(void *map, const struct async_key *key, struct async_operation *operation,
			   struct overflow *overflow)
{
	struct io_kiocb *request = (struct io_kiocb *)key->request;
	if (operation->phase != ASYNC_LIVE || operation->source != SOURCE_IO_URING ||
	    BPF_CORE_READ(request, ctx) != overflow->ring ||
	    BPF_CORE_READ(request, cqe.user_data) != overflow->user_data ||
	    BPF_CORE_READ(request, cqe.res) != overflow->result)
		return 0;
	/* One that runs may have all of that from before, but its descriptor is where the flags will be. */
	if ((__u32)BPF_CORE_READ(request, cqe.fd) != overflow->flags)
		return 0;
	overflow->request = (__u64)request;
	return 1;
}

/*
 * Such a request passes no io_uring_complete. Which one it is has to be looked for, among all: a program that lets its ring
 * overflow is slow anyway. Where its thread has ended by then, one of the kernel's is heard of it.
 */
SEC("tp_btf/io_uring_cqe_overflow")
int BPF_PROG(io_uring_cqe_overflow, void *ring, __u64 user_data, int result, unsigned int flags)
{
	struct overflow overflow = {.ring = ring, .user_data = user_data, .result = result, .flags = flags};
	if (!current_state() && !(bpf_get_current_task_btf()->flags & TASK_KERNEL_THREAD))
		return 0;
	bpf_for_each_map_elem(&async_operations, find_overflown, &overflow, 0);
	return request_completed((void *)overflow.request, result, flags);
}

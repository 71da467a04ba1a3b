/* SPDX-License-Identifier: Apache-2.0 OR BSD-2-Clause */
/*
 * Requests of io_uring and of io_submit, which are submitted in one place and end in another -> what is known of each in
 * between, and which of them is the running operation of a thread.
 */
#ifndef FLEXTRACE_ASYNC_OPERATION_BPF_H
#define FLEXTRACE_ASYNC_OPERATION_BPF_H

#include "kernel_types_async.h"
#include "maps.bpf.h"

enum {
	OPERATIONS_IN_FLIGHT_MAX =
		1 << 17, /* also the highest number of requests of io_submit: fs.aio-max-nr is 2^16 */
	POSITION_OF_KERNEL = -1, /* the kernel chooses: file position or end of file */
};

/* What names an operation: a struct io_kiocb, or a process and the address of its struct iocb. */
struct async_key {
	__u64 request;
	__u64 process; /* 0 = request is an address in the kernel */
};

enum async_phase {
	ASYNC_ENDED = 0, /* the entry waits for the next use of its key */
	ASYNC_LIVE = 1,
	ASYNC_DESCRIBED = 2, /* is being, by the thread that submits it */
	ASYNC_ENDING = 3, /* whoever was the first to see its end makes its record */
};

struct async_operation {
	__u64 id;
	__u64 start_ns;
	__u64 file_pointer; /* 0 = not known yet */
	__u64 inode_pointer;
	__u64 asked_bytes;
	__s64 position; /* or POSITION_OF_KERNEL */
	__u64 argument; /* of a FILEOP, as its length */
	__u64 length;
	__u64 previous; /* of io_uring: request of the chain that has to end first, 0 = none */
	__u64 kiocb; /* of aio: struct aio_kiocb, 0 = not known */
	__u64 noted_ns; /* of aio: the device was done, 0 = not yet */
	__u64 context; /* of aio */
	__u32 thread;
	__u32 process;
	__u32 file;
	__u32 flags; /* enum io_flag, and the high half of a FILEOP's */
	__u32 descriptor_flags; /* f_flags */
	int directory, new_directory; /* where names start */
	__u8 kind; /* RECORD_IO or RECORD_FILEOP */
	__u8 op;
	__u8 source;
	__u8 appends;
	__u8 keeps_place; /* the caller names the offset, though the file is open for appending */
	__u8 has_file; /* the request holds the struct file: what it says at the end is the truth */
	__u8 started; /* counted as in flight */
	__u8 silent; /* io_uring tells nobody of its success (IOSQE_CQE_SKIP_SUCCESS) */
	__u8 punted; /* given to a worker */
	__u8 awaited; /* of aio: counted in its context */
	__u32 phase; /* enum async_phase; the last field (async_enter) */
};

/*
 * Kernel and programs use the same few structures for request after request, so that an entry is kept when its request has
 * ended: to delete and insert it again would cost as much as everything else together.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, OPERATIONS_IN_FLIGHT_MAX);
	__type(key, struct async_key);
	__type(value, struct async_operation);
} async_operations __weak SEC(".maps");

/*
 * What an operation is before anything is known of it: it is entered so and described in the map, as the stack has no room
 * for another.
 */
static const struct async_operation no_operation = {.phase = ASYNC_DESCRIBED};

/*
 * struct aio_kiocb of a direct request -> its key; entered where the file system begins with it, and kept as well: it is true
 * as long as the operation says the same.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, OPERATIONS_IN_FLIGHT_MAX);
	__type(key, __u64);
	__type(value, struct async_key);
} aio_keys __weak SEC(".maps");

static __always_inline struct async_key async_key_of(__u64 request)
{
	/* Addresses of the kernel have the highest bit set. */
	bool of_kernel = (__s64)request < 0;
	return (struct async_key){.request = request, .process = of_kernel ? 0 : bpf_get_current_pid_tgid() >> 32};
}

static __always_inline struct async_operation *async_operation_of(const struct async_key *key)
{
	struct async_operation *operation = bpf_map_lookup_elem(&async_operations, key);
	return operation && operation->phase == ASYNC_LIVE ? operation : NULL;
}

static __always_inline struct async_operation *async_operation_at(__u64 request)
{
	struct async_key key = async_key_of(request);
	return async_operation_of(&key);
}

/* Exit of io_uring_enter (io_uring.bpf.c): the request that it submitted last may have been done without a word. */
int uring_submit_returned(void);

/* Makes room in full tables (async_exit.bpf.c). */
int async_forget_ended(__u64 now_ns);

/* Whether that was ever done. */
__u8 async_has_forgotten __weak = 0;

/*
 * An entry of which nothing is known, to be described and then made live or ended (async_is_live, async_record.bpf.h); NULL
 * if the table is full. entry: what the table has under the key.
 */
static __always_inline struct async_operation *async_enter(const struct async_key *key, struct async_operation *entry,
							   __u64 now_ns)
{
	if (entry) {
		entry->phase = ASYNC_DESCRIBED;
		__builtin_memset(entry, 0, offsetof(struct async_operation, phase));
		return entry;
	}
	if (bpf_map_update_elem(&async_operations, key, &no_operation, BPF_ANY)) {
		async_forget_ended(now_ns);
		bpf_map_update_elem(&async_operations, key, &no_operation, BPF_ANY);
	}
	return bpf_map_lookup_elem(&async_operations, key);
}

/* The operation of a struct kiocb that the file system or the block layer has, NULL if it is none of a traced task's. */
static __always_inline struct async_operation *async_operation_of_kiocb(__u64 kiocb)
{
	struct async_key *of_aio = bpf_map_lookup_elem(&aio_keys, &kiocb);
	if (of_aio) {
		struct async_key key = *of_aio;
		struct async_operation *operation = async_operation_of(&key);
		if (operation && operation->kiocb == kiocb)
			return operation;
	}
	struct async_key key = {.request = kiocb};
	return async_operation_of(&key);
}

/* Makes a request the operation that runs in this thread; one that is not recorded (NULL) makes it none. */
static __always_inline void async_switch_to(struct task_state *state, __u64 request,
					    const struct async_operation *operation)
{
	state->request = 0;
	state->id = 0;
	state->file = 0;
	if (!operation)
		return;
	state->request = request;
	state->id = operation->id;
	state->start_ns = operation->start_ns;
	state->file_pointer = operation->file_pointer;
	state->inode_pointer = operation->inode_pointer;
	state->file = operation->file;
	state->descriptor_flags = operation->descriptor_flags;
	state->position = operation->position;
	state->asked_bytes = operation->asked_bytes;
	/* The search for a position (file_position.bpf.h) is for system calls. */
	state->positioned = 1;
	state->appends = 0;
	state->position_lock = 0;
}

/* The same, by what names it; 0 makes it none. */
static __always_inline void async_switch(struct task_state *state, __u64 request)
{
	/* The same address can be another request by now: the kernel uses them again. */
	if (state->request || request)
		async_switch_to(state, request, request ? async_operation_at(request) : NULL);
}

/*
 * State of the thread that runs, with the operation that runs in it. Nothing tells when a worker of io_uring takes a
 * request, so it is looked up where something happens.
 */
static __always_inline struct task_state *running_state(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct task_state *state = bpf_task_storage_get(&tasks, task, NULL, 0);
	if (!state || !(task->flags & TASK_IO_WORKER))
		return state;
	struct io_worker *worker = task->worker_private;
	if (!worker)
		return state; /* the thread that submits (SQPOLL) */
	struct io_wq_work *work = BPF_CORE_READ(worker, cur_work);
	async_switch(state, work ? (__u64)work - bpf_core_field_offset(struct io_kiocb, work) : 0);
	return state;
}

#endif /* FLEXTRACE_ASYNC_OPERATION_BPF_H */

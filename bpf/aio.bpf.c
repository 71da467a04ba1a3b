// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Requests of io_submit (libaio) -> IO and FILEOP records.
 *
 * The kernel has no tracepoint where it takes a request, so they are read from the memory of the program at the entry of
 * io_submit; its result says how many were taken. A request ends
 *	- where the file system has finished its direct I/O (direct_io.bpf.c), with the time of the device;
 *	- else where its event is seen in the completion ring, which lies in the memory of the program because programs
 *	  (libaio, fio) take events there without a system call: looked at around every call on the context (aio_ring.bpf.c);
 *	- else where io_getevents returns its event: a page of the ring may not be readable.
 * Whichever is first counts. Buffered requests, and those that fail at once, are done inside io_submit, and are seen in the
 * ring at its exit. Around io_getevents it is looked at only if it has requests which the first way will not end; at the next
 * io_submit in any case, as the kernel leaves out a program that would interrupt itself.
 */
#include "aio.bpf.h"
#include "async_record.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

enum {
	COMMAND_PREAD = 0, /* IOCB_CMD_* of include/uapi/linux/aio_abi.h */
	COMMAND_PWRITE = 1,
	COMMAND_FSYNC = 2,
	COMMAND_FDSYNC = 3,
	COMMAND_PREADV = 7,
	COMMAND_PWRITEV = 8,
	REQUESTS_PER_CALL_MAX = 1 << 16, /* default of fs.aio-max-nr, which is for the whole machine */
	REQUESTS_SEARCHED_MAX = 1 << 8,
	ENDING_LOOKS_MAX = 1 << 15, /* some 100 us; it takes one, unless a hypervisor takes the other CPU away */
};

/* struct iocb, of the user interface. */
struct user_iocb {
	__u64 data;
	__u32 key;
	__u32 rw_flags;
	__u16 command;
	__s16 priority;
	__u32 descriptor;
	__u64 buffer;
	__u64 bytes;
	__s64 offset;
	__u64 reserved;
	__u32 flags;
	__u32 event_descriptor;
};

/* Too large for the stack. Programs at tracepoints run with preemption off, and no interrupt handler uses this. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct user_iocb);
} iocb_scratch SEC(".maps");

/*
 * Of an append through the page cache only the lowest possible offset is known (take_request): how far the highest is away,
 * for the recorder to find the place (shared_offset.c).
 */
static __always_inline __u32 append_width(const struct async_operation *operation, __s64 done)
{
	struct inode *inode = (struct inode *)operation->inode_pointer;
	if (!operation->appends || operation->kiocb || done <= 0)
		return 0;
	return offset_width(BPF_CORE_READ(inode, i_size) - done - operation->position);
}

int aio_request_ends(__u64 iocb, __u64 process, __s64 result, __u64 end_ns, __u64 context)
{
	struct async_key key = {.request = iocb, .process = process};
	struct async_operation *operation = async_operation_of(&key);
	/* The event of an earlier request with this struct iocb: of another ring, or taken by another thread. */
	if (operation && context && (operation->context != context || operation->start_ns > end_ns))
		return 0;
	/* Several threads can look at the same event: it ends for the first. */
	if (!operation || __sync_val_compare_and_swap(&operation->phase, ASYNC_LIVE, ASYNC_ENDING) != ASYNC_LIVE)
		return 0;
	aio_await(operation, &key, 0);
	if (operation->noted_ns)
		end_ns = operation->noted_ns;
	add_file_flags(operation);
	if (operation->kind == RECORD_IO) {
		ask_for_result(operation, result);
		operation_ends(operation->op, SOURCE_AIO, result);
		async_send_io(operation, operation->position, append_width(operation, result), result, end_ns);
	} else {
		async_send_fileop(operation, result, end_ns);
	}
	operation->phase = ASYNC_ENDED;
	return 0;
}

static __always_inline bool describe(const struct user_iocb *iocb, struct async_operation *operation)
{
	bool vectored = iocb->command == COMMAND_PREADV || iocb->command == COMMAND_PWRITEV;
	switch (iocb->command) {
	case COMMAND_FSYNC:
	case COMMAND_FDSYNC:
		operation->kind = RECORD_FILEOP;
		operation->op = iocb->command == COMMAND_FSYNC ? FILEOP_FSYNC : FILEOP_FDATASYNC;
		return true;
	case COMMAND_PREAD:
	case COMMAND_PREADV:
		operation->op = IO_READ;
		break;
	case COMMAND_PWRITE:
	case COMMAND_PWRITEV:
		operation->op = IO_WRITE;
		operation->appends = !!(iocb->rw_flags & RWF_APPEND);
		operation->keeps_place = !!(iocb->rw_flags & RWF_NOAPPEND);
		break;
	default: /* poll */
		return false;
	}
	operation->kind = RECORD_IO;
	operation->position = iocb->offset;
	operation->asked_bytes = vectored ? vector_bytes(iocb->buffer, iocb->bytes) : iocb->bytes;
	operation->flags = call_io_flags(iocb->rw_flags) | IO_POSITIONED | (vectored ? IO_VECTORED : 0);
	return true;
}

struct submission {
	__u64 iocbs;
	__u64 first; /* index of the first request to go through */
	__u64 now_ns;
	__u64 begun_ns; /* of what the kernel has taken by now; 0 = it is about to */
	/* The last request of this call that appends, and where it will end if all goes well. */
	__u64 append_inode, append_end;
};

/* Describes a request that is submitted now; false if it is none that is recorded. */
static __always_inline bool enter_request(const struct user_iocb *iocb, struct async_operation *operation,
					  struct file *file, struct submission *submission)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct task_state *state = bpf_task_storage_get(&tasks, task, NULL, 0);
	operation->source = SOURCE_AIO;
	operation->thread = task->pid;
	operation->process = task->tgid;
	if (!state || !describe(iocb, operation) || !set_file(operation, file, iocb->descriptor))
		return false;
	if (operation->kind == RECORD_IO && operation->asked_bytes < filter_size_bytes_min) {
		count_skip(SKIP_FILTERED);
		return false;
	}
	if (operation->op == IO_WRITE && operation->kind == RECORD_IO && operation->descriptor_flags & OPEN_APPEND)
		operation->appends = 1;
	/* Direct I/O tells where exactly when it begins (direct_io.bpf.c); the rest is done one after the other. */
	if (operation->appends) {
		bool follows = submission->append_inode == operation->inode_pointer;
		operation->position = follows ? submission->append_end : BPF_CORE_READ(file, f_mapping, host, i_size);
		submission->append_inode = operation->inode_pointer;
		submission->append_end = operation->position + operation->asked_bytes;
	}
	if (submission->begun_ns && operation->appends) {
		/* Where the file ended before nobody knows any more. */
		count_loss(RECORD_IO, submission->now_ns);
		return false;
	}
	if (!submission->begun_ns)
		add_submission_flags(operation, state);
	operation->id = next_operation_id(state);
	operation->context = state->aio_context;
	operation->awaited = 1;
	state->aio_awaited++;
	async_start(operation, submission->begun_ns ? submission->begun_ns : bpf_ktime_get_ns());
	return true;
}

static __always_inline __u64 address_of_request(const struct submission *submission, __u32 index)
{
	__u64 address = 0;
	bpf_probe_read_user(&address, sizeof(address), (const __u64 *)submission->iocbs + submission->first + index);
	return address;
}

/*
 * Whether a request that is still in flight is one of another context, whose ring was not looked at in this call: a program may
 * have taken its event from there without a system call.
 */
static __always_inline bool is_to_look_elsewhere(const struct async_operation *operation)
{
	struct task_state *state = current_state();
	if (!state || state->aio_looks_elsewhere || operation->context == state->aio_context)
		return false;
	state->aio_looks_elsewhere = 1;
	return true;
}

static long is_through(__u32 look, struct async_operation **operation)
{
	return (*operation)->phase != ASYNC_ENDING;
}

/*
 * Waits while another CPU makes the record of the request before with this struct iocb: a thread of the program has read its
 * event in the ring just as that CPU has. false if it takes too long. Not inline, for the stack of 6.1.
 */
static __noinline bool can_be_reused(struct async_operation *operation)
{
	if (operation->phase == ASYNC_ENDING)
		bpf_loop(ENDING_LOOKS_MAX, is_through, &operation, 0);
	return operation->phase != ASYNC_ENDING;
}

static long take_request(__u32 index, void *context)
{
	struct submission *submission = context;
	__u32 zero = 0;
	struct user_iocb *iocb = bpf_map_lookup_elem(&iocb_scratch, &zero);
	__u64 address = address_of_request(submission, index);
	/* What has no file the kernel will refuse, with all that follow; what cannot be read only perhaps. */
	if (!iocb || bpf_probe_read_user(iocb, sizeof(*iocb), (const void *)address))
		return 1;
	struct task_struct *task = bpf_get_current_task_btf();
	struct file *file = file_of_descriptor(task, iocb->descriptor);
	if (!file)
		return 1;
	struct async_key key = async_key_of(address);
	struct async_operation *entry = bpf_map_lookup_elem(&async_operations, &key);
	if (entry && entry->phase == ASYNC_LIVE && is_to_look_elsewhere(entry))
		return 1;
	if (entry && entry->phase == ASYNC_LIVE) {
		/* In flight twice: only one of the two ends will be found. */
		async_abandon(entry);
		aio_await(entry, &key, 0);
		key.request = address;
		count_loss(entry->kind, submission->now_ns);
	}
	struct async_operation *operation = NULL;
	if (!entry || can_be_reused(entry))
		operation = async_enter(&key, entry, submission->now_ns);
	bool live = false;
	if (!operation)
		count_loss(RECORD_IO, submission->now_ns);
	else
		live = async_is_live(&key, operation, enter_request(iocb, operation, file, submission),
				     submission->now_ns);
	struct task_state *state = bpf_task_storage_get(&tasks, task, NULL, 0);
	if (!state)
		return 1;
	state->aio_looked = submission->first + index + 1;
	/* The only request of a call runs in it. */
	if (state->aio_counted == 1 && !submission->begun_ns && live)
		async_switch_to(state, address, operation);
	return 0;
}

static __always_inline __u32 requests_of_call(__u64 count)
{
	return count < REQUESTS_PER_CALL_MAX ? count : REQUESTS_PER_CALL_MAX;
}

int aio_submit_begins(__u64 context, __u64 count, __u64 iocbs)
{
	struct task_state *state = current_state();
	if (!state)
		return 0;
	aio_scan_ring(context);
	note_async_process(state, bpf_get_current_pid_tgid() >> 32);
	/* Before the first is there, so that no thread passes over its event: all that may come. */
	struct async_key key = async_key_of(context);
	struct aio_context *known = bpf_map_lookup_elem(&aio_contexts, &key);
	state->aio_awaited = 0;
	state->aio_counted = requests_of_call(count);
	state->aio_context = context;
	if (known)
		__sync_fetch_and_add(&known->awaited, state->aio_counted);
	struct submission submission = {.iocbs = iocbs, .now_ns = bpf_ktime_get_ns()};
	state->aio_looked = 0;
	state->aio_looks_elsewhere = 0;
	state->aio_begun_ns = submission.now_ns;
	bpf_loop(requests_of_call(count), take_request, &submission, 0);
	return state->aio_looks_elsewhere;
}

int aio_submit_goes_on(__u64 count, __u64 iocbs)
{
	struct task_state *state = current_state();
	if (!state || count <= state->aio_looked)
		return 0;
	struct submission submission = {
		.iocbs = iocbs,
		.first = state->aio_looked,
		.now_ns = bpf_ktime_get_ns(),
	};
	bpf_loop(requests_of_call(count - submission.first), take_request, &submission, 0);
	return 0;
}

static long take_back_request(__u32 index, void *context)
{
	struct async_key key = async_key_of(address_of_request(context, index));
	struct async_operation *operation = async_operation_of(&key);
	if (!operation)
		return 0;
	async_abandon(operation);
	aio_await(operation, &key, 0);
	operation->phase = ASYNC_ENDED;
	return 0;
}

/* One that failed at once does not end where direct I/O does, and its event could not be read. */
static long await_request(__u32 index, void *context)
{
	struct async_key key = async_key_of(address_of_request(context, index));
	struct async_operation *operation = async_operation_of(&key);
	if (operation)
		aio_await(operation, &key, 1);
	return 0;
}

static long lose_request(__u32 index, void *context)
{
	const struct submission *submission = context;
	count_loss(RECORD_IO, submission->now_ns);
	return 0;
}

/*
 * Requests on a page that was not there yet when the call began: the kernel has read them now. Nothing told what they did
 * within the call.
 */
int aio_submit_returned(__u64 iocbs, __s64 result)
{
	struct task_state *state = current_state();
	__u64 taken = result > 0 ? result : 0;
	if (!state || taken <= state->aio_looked)
		return 0;
	struct submission submission = {
		.iocbs = iocbs,
		.first = state->aio_looked,
		.now_ns = bpf_ktime_get_ns(),
		.begun_ns = state->aio_begun_ns,
	};
	state->aio_looks_elsewhere = 1; /* too late for that */
	bpf_loop(requests_of_call(taken - submission.first), take_request, &submission, 0);
	if (state->aio_looked < taken)
		bpf_loop(requests_of_call(taken - state->aio_looked), lose_request, &submission, 0);
	return 0;
}

int aio_submit_ends(__u64 context, __u64 iocbs, __s64 result)
{
	struct task_state *state = current_state();
	if (!state)
		return 0;
	async_switch(state, 0);
	__u64 taken = result > 0 ? result : 0;
	struct submission submission = {.iocbs = iocbs, .first = taken};
	if (taken < state->aio_looked)
		bpf_loop(requests_of_call(state->aio_looked - taken), take_back_request, &submission, 0);
	submission.first = 0;
	if (!aio_scan_ring(context))
		bpf_loop(requests_of_call(taken), await_request, &submission, 0);
	struct async_key key = async_key_of(context);
	struct aio_context *known = bpf_map_lookup_elem(&aio_contexts, &key);
	if (known)
		__sync_fetch_and_add(&known->awaited, state->aio_awaited - (__s32)state->aio_counted);
	return 0;
}

/* A request of the call that runs, by what it is doing. */
struct search {
	__u64 iocbs;
	__u64 inode;
	__u64 offset;
	__u64 found; /* address of its iocb, 0 = none */
};

static long match_request(__u32 index, void *context)
{
	struct search *search = context;
	__u64 address = 0;
	bpf_probe_read_user(&address, sizeof(address), (const __u64 *)search->iocbs + index);
	struct async_operation *operation = async_operation_at(address);
	if (!operation || operation->inode_pointer != search->inode)
		return 0;
	__u64 first = operation->position & ~(__u64)(PAGE_BYTES - 1);
	if (!operation->appends &&
	    (search->offset < first || search->offset >= operation->position + operation->asked_bytes))
		return 0;
	search->found = address;
	return 1;
}

int aio_runs_at(__u64 inode, __u64 offset)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct task_state *state = bpf_task_storage_get(&tasks, task, NULL, 0);
	if (!state || state->call != CALL_IO_SUBMIT)
		return 0;
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	__u64 count = regs->si;
	if (count == 1)
		return 0;
	struct search search = {.iocbs = regs->dx, .inode = inode, .offset = offset};
	bpf_loop(count < REQUESTS_SEARCHED_MAX ? count : REQUESTS_SEARCHED_MAX, match_request, &search, 0);
	if (search.found)
		async_switch(state, search.found);
	return 0;
}

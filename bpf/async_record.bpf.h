/* SPDX-License-Identifier: Apache-2.0 OR BSD-2-Clause */
/*
 * A request of io_uring or io_submit that has ended -> its IO or FILEOP record.
 */
#ifndef FLEXTRACE_ASYNC_RECORD_BPF_H
#define FLEXTRACE_ASYNC_RECORD_BPF_H

#include "async_operation.bpf.h"
#include "known_file.bpf.h"
#include "io_flags.bpf.h"
#include "page_cache.bpf.h"

enum {
	AIO_CONTEXTS_MAX = 1 << 12,
	ASYNC_PROCESSES_MAX = 1 << 12,
};

/* Of io_submit; key: process and address. */
struct aio_context {
	__u32 seen; /* index of the first event in its ring that has not been looked at */
	__s32 awaited; /* requests that end where their event is seen, and not before */
};
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, AIO_CONTEXTS_MAX);
	__type(key, struct async_key);
	__type(value, struct aio_context);
} aio_contexts __weak SEC(".maps");

/* Processes that may have requests when they end (async_exit.bpf.c). */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, ASYNC_PROCESSES_MAX);
	__type(key, __u32);
	__type(value, __u32);
} async_processes __weak SEC(".maps");

/* Whether one found no room there: from then on every process may. */
__u8 async_processes_beyond __weak = 0;

/*
 * The ways to an end, from whichever object notices it. Verified once, by themselves (file_identity.bpf.h). A request that
 * is not known, or has ended, is passed over.
 * goes_on: the thread that runs is the one which goes on with what is linked to the request; an interrupt is in any thread.
 */
int uring_request_ends(__u64 request, __s64 result, bool goes_on);
/* context: whose event tells it, 0 = another one does. */
int aio_request_ends(__u64 iocb, __u64 process, __s64 result, __u64 end_ns, __u64 context);
/*
 * Ends what has ended according to the completion ring of a context, in the memory of the process that runs. Returns whether
 * all new events could be read.
 */
int aio_scan_ring(__u64 context);

static __always_inline void note_async_process(struct task_state *state, __u32 process)
{
	if (!state->async_noted && bpf_map_update_elem(&async_processes, &process, &process, BPF_ANY))
		async_processes_beyond = 1;
	state->async_noted = 1;
}

/*
 * From now on a request of aio ends where its event is seen in the ring of its context, or (0) elsewhere, too. Makes its key
 * that of its context: up to 6.12 functions that call each other have 512 bytes of stack together.
 */
static __always_inline void aio_await(struct async_operation *operation, struct async_key *key, __u8 awaited)
{
	if (operation->awaited == awaited)
		return;
	operation->awaited = awaited;
	key->request = operation->context;
	struct aio_context *context = bpf_map_lookup_elem(&aio_contexts, key);
	if (context)
		__sync_fetch_and_add(&context->awaited, awaited ? 1 : -1);
}

/* false if the file is none that is recorded; that is counted. */
static __always_inline bool set_file_of(struct task_state *state, struct async_operation *operation, struct file *file,
					__u32 descriptor)
{
	struct known_file *known = known_file_at(state, descriptor);
	if (!known)
		return false;
	bool is_fileop = operation->kind == RECORD_FILEOP;
	know_file(known, file,
		  (is_fileop ? IDENTIFY_DIRECTORIES : 0) |
			  (is_fileop && operation->op == FILEOP_OPEN ? IDENTIFY_OPENED : 0));
	operation->file_pointer = (__u64)file;
	operation->file = known->file;
	operation->inode_pointer = known->data_inode_pointer;
	bpf_core_read(&operation->descriptor_flags, sizeof(operation->descriptor_flags), &file->f_flags);
	if (operation->keeps_place)
		operation->descriptor_flags &= ~OPEN_APPEND;
	if (known->is_directory)
		operation->flags |= IO_DIRECTORY;
	return operation->file;
}

static __always_inline bool set_file(struct async_operation *operation, struct file *file, __u32 descriptor)
{
	return set_file_of(current_state(), operation, file, descriptor);
}

/* Flags that depend on the file. */
static __always_inline void add_file_flags(struct async_operation *operation)
{
	operation->flags |= descriptor_io_flags(operation->descriptor_flags);
	if (operation->kind != RECORD_IO || operation->op != IO_WRITE)
		return;
	if (operation->descriptor_flags & OPEN_APPEND)
		operation->appends = 1;
	operation->flags = operation->appends ? operation->flags | IO_APPEND : operation->flags & ~IO_APPEND;
}

static __always_inline bool is_write_to_file(const struct async_operation *operation)
{
	return operation->kind == RECORD_IO && operation->op == IO_WRITE && operation->inode_pointer;
}

/* Flags that only the time before a write can tell. */
static __always_inline void add_entry_flags(struct async_operation *operation)
{
	if (is_write_to_file(operation))
		operation->flags |= ctime_io_flag(ctime_nsec_of(operation->inode_pointer));
}

/* The same, of a request that may have to wait for others: of those that find the same time the first changes it. */
static __always_inline void add_submission_flags(struct async_operation *operation, struct task_state *state)
{
	if (!is_write_to_file(operation))
		return;
	__u32 ctime_nsec = ctime_nsec_of(operation->inode_pointer);
	if (state->submitted_inode != operation->inode_pointer || state->submitted_ctime_nsec != ctime_nsec)
		operation->flags |= ctime_io_flag(ctime_nsec);
	state->submitted_inode = operation->inode_pointer;
	state->submitted_ctime_nsec = ctime_nsec;
}

/* A vector of buffers that could not be read when the request was submitted is longer than it seemed. */
static __always_inline void ask_for_result(struct async_operation *operation, __s64 result)
{
	if (result > 0 && (__u64)result > operation->asked_bytes)
		operation->asked_bytes = result;
}

/* Counts it as in flight, from the moment that it no longer waits for another. */
static __always_inline void async_start(struct async_operation *operation, __u64 now_ns)
{
	if (operation->started)
		return;
	operation->started = 1;
	operation->start_ns = now_ns;
	if (operation->kind == RECORD_IO)
		operation_begins();
}

/* Of one that may have waited for others, which is over now. */
static __always_inline void async_start_behind(struct async_operation *operation, __u64 now_ns)
{
	if (!operation->started)
		add_entry_flags(operation);
	async_start(operation, now_ns);
}

/* Ended without having been on a file. */
static __always_inline void async_abandon(const struct async_operation *operation)
{
	if (operation->started && operation->kind == RECORD_IO)
		operation_is_abandoned();
}

/*
 * Makes an entry that is described live, or ended if it is none to record. Returns whether it is live: one that had ended may
 * have been forgotten just before it was entered again, which is counted.
 */
static __always_inline bool async_is_live(const struct async_key *key, struct async_operation *operation, bool recorded,
					  __u64 now_ns)
{
	operation->phase = recorded ? ASYNC_LIVE : ASYNC_ENDED;
	if (!recorded)
		return false;
	if (!async_has_forgotten || bpf_map_lookup_elem(&async_operations, key) == operation)
		return true;
	async_abandon(operation);
	count_loss(operation->kind, now_ns);
	return false;
}

/* As the record has it. */
static __always_inline __u32 async_missed(const struct async_operation *operation, __u64 offset, __s64 done)
{
	if (operation->op != IO_READ)
		return TRACE_NOT_MEASURED_U32;
	if (done <= 0)
		return 0;
	if (operation->descriptor_flags & OPEN_DIRECT)
		return is_in_memory((struct inode *)operation->inode_pointer) ? 0 : done;
	return take_missed_of(operation->file, operation->inode_pointer, offset, done);
}

/* width: how uncertain the offset is, 0 = it is exact; as for system calls (file_position.bpf.h). */
static __always_inline void async_send_io(const struct async_operation *operation, __u64 offset, __u32 width,
					  __s64 result, __u64 end_ns)
{
	struct io_record *record = reserve_event_of(operation->file, sizeof(struct io_record), RECORD_IO, end_ns);
	if (!record)
		return;
	record->kind = RECORD_IO;
	record->op = operation->op;
	record->source = operation->source;
	record->processor_share = 0;
	record->flags = operation->flags | (width ? IO_OFFSET_INFERRED : 0);
	record->start_ns = operation->start_ns;
	record->duration_ns = end_ns - operation->start_ns;
	record->thread = operation->thread;
	record->process = operation->process;
	record->file = operation->file;
	record->asked_bytes = saturated_u32(operation->asked_bytes);
	record->offset = offset;
	record->result = result;
	record->missed_bytes = width ? width : async_missed(operation, offset, result);
	record->id = operation->id;
	submit_event(record);
}

static __always_inline void async_send_fileop(const struct async_operation *operation, __s64 result, __u64 end_ns)
{
	struct fileop_record *record =
		reserve_event_of(operation->file, sizeof(struct fileop_record), RECORD_FILEOP, end_ns);
	if (!record)
		return;
	record->kind = RECORD_FILEOP;
	record->op = operation->op;
	record->source = operation->source;
	record->processor_share = 0;
	record->flags = operation->flags;
	record->start_ns = operation->start_ns;
	record->duration_ns = end_ns - operation->start_ns;
	record->thread = operation->thread;
	record->process = operation->process;
	record->file = operation->file;
	record->result = result;
	record->argument = operation->argument;
	record->length = operation->length;
	record->id = operation->id;
	submit_event(record);
}

#endif /* FLEXTRACE_ASYNC_RECORD_BPF_H */

// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Requests of request-based block devices, from issue to completion -> BLOCK records.
 *
 * Keyed by request, never by (device, sector), which collides on flush, discard and reuse. Who submitted it is taken where
 * the submitter runs (block_io_start, block_rq_insert); the issue itself may run in a kernel worker.
 */
#include "maps.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct request_state {
	__u64 queued_ns; /* when it was submitted, where that was seen */
	__u64 issued_ns;
	__u64 cause;
	__u64 sector;
	__u32 thread;
	__u32 process;
	__u32 device;
	__u32 bytes;
	__u32 done_bytes;
	__u32 command_flags;
	__u32 submitter_known;
	__u32 requeued;
	__u32 skipped;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, REQUESTS_IN_FLIGHT_MAX);
	__type(key, __u64);
	__type(value, struct request_state);
} requests SEC(".maps");

/* The recorder itself and its trace file are not part of the trace. */
const volatile __u32 recorder_process = 0;
const volatile __u32 trace_file_device = 0;
const volatile __u64 trace_file_inode = 0;

/* enum req_op and enum req_flag_bits of include/linux/blk_types.h; the operation is the low byte. */
enum {
	REQUEST_OP_MASK = 0xff,
	REQUEST_OP_READ = 0,
	REQUEST_OP_WRITE = 1,
	REQUEST_OP_FLUSH = 2,
	REQUEST_OP_DISCARD = 3,
	REQUEST_OP_SECURE_ERASE = 5,
	REQUEST_OP_WRITE_ZEROES = 9,
	REQUEST_OP_DRIVER_IN = 34,
	REQUEST_OP_DRIVER_OUT = 35,
	POINTER_TAG_MASK = 3, /* low bits of page->mapping: not a file's mapping */
};

/* Bit numbers differ between kernels, so they are read from BTF by name. */
enum req_flag_bits {
	__REQ_SYNC = 11,
	__REQ_META = 12,
	__REQ_PRIO = 13,
	__REQ_FUA = 17,
	__REQ_PREFLUSH = 18,
	__REQ_RAHEAD = 19,
	__REQ_BACKGROUND = 20,
	__REQ_SWAP = 24,
};

#define flag_if(command_flags, bit, flag)                                                      \
	(bpf_core_enum_value_exists(enum req_flag_bits, bit) &&                                \
			 ((command_flags) >> bpf_core_enum_value(enum req_flag_bits, bit)) & 1 \
		 ? (flag)                                                                      \
		 : 0)

static __always_inline __u32 block_flags(__u32 command_flags)
{
	return flag_if(command_flags, __REQ_SYNC, BLOCK_SYNC) | flag_if(command_flags, __REQ_META, BLOCK_META) |
	       flag_if(command_flags, __REQ_PRIO, BLOCK_PRIO) | flag_if(command_flags, __REQ_FUA, BLOCK_FUA) |
	       flag_if(command_flags, __REQ_PREFLUSH, BLOCK_PREFLUSH) |
	       flag_if(command_flags, __REQ_RAHEAD, BLOCK_READAHEAD) |
	       flag_if(command_flags, __REQ_BACKGROUND, BLOCK_BACKGROUND) |
	       flag_if(command_flags, __REQ_SWAP, BLOCK_SWAP);
}

static __always_inline __u8 block_op(__u32 command_flags)
{
	switch (command_flags & REQUEST_OP_MASK) {
	case REQUEST_OP_READ:
		return BLOCK_READ;
	case REQUEST_OP_WRITE:
		return BLOCK_WRITE;
	case REQUEST_OP_FLUSH:
		return BLOCK_FLUSH;
	case REQUEST_OP_DISCARD:
		return BLOCK_DISCARD;
	case REQUEST_OP_SECURE_ERASE:
		return BLOCK_SECURE_ERASE;
	case REQUEST_OP_WRITE_ZEROES:
		return BLOCK_WRITE_ZEROES;
	case REQUEST_OP_DRIVER_IN:
	case REQUEST_OP_DRIVER_OUT:
		return BLOCK_OTHER;
	default:
		return BLOCK_ZONE;
	}
}

/* Whether the first page of a request belongs to the recorder's trace file, wherever it is written back from. */
static __always_inline bool is_trace_file(struct request *request)
{
	struct page *page = BPF_CORE_READ(request, bio, bi_io_vec, bv_page);
	if (!trace_file_inode || !page)
		return false;
	unsigned long head = BPF_CORE_READ(page, compound_head);
	if (head & 1)
		page = (struct page *)(head - 1);
	struct address_space *mapping = BPF_CORE_READ(page, mapping);
	if (!mapping || ((unsigned long)mapping & POINTER_TAG_MASK))
		return false;
	struct inode *inode = BPF_CORE_READ(mapping, host);
	return BPF_CORE_READ(inode, i_ino) == trace_file_inode &&
	       BPF_CORE_READ(inode, i_sb, s_dev) == trace_file_device;
}

static __always_inline void note_submitter(struct request_state *state)
{
	__u64 process_thread = bpf_get_current_pid_tgid();
	state->thread = (__u32)process_thread;
	state->process = process_thread >> 32;
	struct task_state *task = bpf_task_storage_get(&tasks, bpf_get_current_task_btf(), NULL, 0);
	state->cause = task && task->call != CALL_NONE ? task->id : 0;
}

static __always_inline void request_submitted(struct request *request)
{
	__u64 key = (__u64)request;
	struct request_state state = {.queued_ns = bpf_ktime_get_ns(), .submitter_known = 1};
	note_submitter(&state);
	/* A full table is counted when the request is issued. */
	bpf_map_update_elem(&requests, &key, &state, BPF_NOEXIST);
}

SEC("tp_btf/block_io_start")
int BPF_PROG(block_io_start, struct request *request)
{
	request_submitted(request);
	return 0;
}

SEC("tp_btf/block_rq_insert")
int BPF_PROG(block_rq_insert, struct request *request)
{
	request_submitted(request);
	return 0;
}

SEC("tp_btf/block_rq_issue")
int BPF_PROG(block_rq_issue, struct request *request)
{
	__u64 key = (__u64)request;
	__u64 now_ns = bpf_ktime_get_ns();
	struct request_state *state = bpf_map_lookup_elem(&requests, &key);
	if (!state) {
		struct request_state fresh = {};
		note_submitter(&fresh);
		bpf_map_update_elem(&requests, &key, &fresh, BPF_NOEXIST);
		state = bpf_map_lookup_elem(&requests, &key);
		if (!state) {
			count_loss(RECORD_BLOCK, now_ns);
			return 0;
		}
	}
	struct gendisk *disk = BPF_CORE_READ(request, q, disk);
	state->device = (__u32)BPF_CORE_READ(disk, major) << 20 | (__u32)BPF_CORE_READ(disk, first_minor);
	state->sector = BPF_CORE_READ(request, __sector);
	state->bytes = BPF_CORE_READ(request, __data_len);
	state->command_flags = BPF_CORE_READ(request, cmd_flags);
	state->skipped = state->process == recorder_process || is_trace_file(request);
	state->issued_ns = now_ns;
	return 0;
}

SEC("tp_btf/block_rq_requeue")
int BPF_PROG(block_rq_requeue, struct request *request)
{
	__u64 key = (__u64)request;
	struct request_state *state = bpf_map_lookup_elem(&requests, &key);
	if (state)
		state->requeued = 1;
	return 0;
}

SEC("tp_btf/block_rq_complete")
int BPF_PROG(block_rq_complete, struct request *request, __u8 status, unsigned int bytes)
{
	__u64 key = (__u64)request;
	struct request_state *state = bpf_map_lookup_elem(&requests, &key);
	if (!state)
		return 0;
	if (!state->issued_ns) {
		/* Completed without an issue: it was in flight before recording began, and the entry is half known. */
		bpf_map_delete_elem(&requests, &key);
		return 0;
	}
	/* A request may complete in parts; the last part ends it. An error ends it whatever was transferred. */
	state->done_bytes += bytes;
	if (state->done_bytes < state->bytes && !status)
		return 0;
	__u64 now_ns = bpf_ktime_get_ns();
	if (state->skipped) {
		count_skip(SKIP_OWN_BLOCK);
	} else {
		struct block_record *record = reserve_event(sizeof(struct block_record), RECORD_BLOCK, now_ns);
		if (record) {
			record->kind = RECORD_BLOCK;
			record->op = block_op(state->command_flags);
			record->form = BLOCK_REQUEST;
			record->status = status;
			record->flags = block_flags(state->command_flags) | (state->requeued ? BLOCK_REQUEUED : 0) |
					(state->submitter_known ? 0 : BLOCK_UNATTRIBUTED);
			record->start_ns = state->issued_ns;
			record->duration_ns = now_ns - state->issued_ns;
			record->thread = state->thread;
			record->process = state->process;
			record->device = state->device;
			record->bytes = state->bytes;
			record->sector = state->sector;
			record->queued_ns =
				state->submitter_known ? state->issued_ns - state->queued_ns : TRACE_NOT_MEASURED_U64;
			record->cause = state->cause;
			submit_event(record);
		}
	}
	bpf_map_delete_elem(&requests, &key);
	return 0;
}

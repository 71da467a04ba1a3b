// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Requests of request-based block devices, from submission to completion -> BLOCK and BLOCK_DATA records.
 *
 * Keyed by request, never by (device, sector), which collides on flush, discard and reuse. Who submitted it is taken where
 * the submitter runs; the issue itself may run in a kernel worker.
 */
#include "block_pieces.bpf.h"
#include "block_totals.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

enum request_phase {
	REQUEST_IDLE = 0,
	REQUEST_SUBMITTED,
	REQUEST_ISSUED,
};

/*
 * Kept for the next use of the same struct request, of which a device has a fixed set: REQUEST_IDLE stands for a deleted
 * entry, at a tenth of the cost.
 */
struct request_state {
	struct submission submission;
	__u64 issued_ns;
	__u64 first_bio; /* the one that the request was made for */
	__u64 sector; /* at the issue, as what follows */
	__u32 command_flags;
	__u32 bytes;
	__u32 device;
	__u32 done_bytes;
	__u8 phase; /* enum request_phase */
	__u8 submitter_known;
	__u8 requeued;
	__u8 wanted; /* at the issue: the user wants to know of the device */
	__u8 one_direct; /* at the issue: its data is one bio of direct I/O */
};

enum {
	REQUESTS_MAX = 1 << 18, /* of all devices; an entry takes memory from its first use on */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, REQUESTS_MAX);
	__type(key, __u64);
	__type(value, struct request_state);
} requests SEC(".maps");

/* Who wanted the flush that a device's own request for flushes will make; by queue. The last one, if several wait. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, DEVICES_MAX);
	__type(key, __u64);
	__type(value, struct submission);
} flush_submissions SEC(".maps");

static __always_inline void note_flush(const struct request_queue *queue, __u32 command_flags,
				       const struct submission *submission)
{
	__u64 key = (__u64)queue;
	if (has_request_flag(command_flags, __REQ_PREFLUSH) || has_request_flag(command_flags, __REQ_FUA))
		bpf_map_update_elem(&flush_submissions, &key, submission, BPF_ANY);
}

static __always_inline struct request_state *state_of(struct request *request)
{
	__u64 key = (__u64)request;
	struct request_state *state = bpf_map_lookup_elem(&requests, &key);
	if (state)
		return state;
	struct request_state fresh = {};
	bpf_map_update_elem(&requests, &key, &fresh, BPF_NOEXIST);
	return bpf_map_lookup_elem(&requests, &key);
}

static __always_inline void request_begins(struct request_state *state, const struct gendisk *disk,
					   const struct bio *bio)
{
	/* A host's requests may serve several disks, and its memory others when one is gone. */
	state->device = device_number(disk);
	state->first_bio = (__u64)bio;
	state->done_bytes = 0;
	state->requeued = 0;
	state->submitter_known = 1;
}

/* Whether the user wants to know of the device, which may be a partition. */
static __always_inline bool is_wanted(const struct request_state *state, struct request *request)
{
	return !filter_device || filter_device == state->device ||
	       (bpf_core_field_exists(request->part) && filter_device == BPF_CORE_READ(request, part, bd_dev));
}

static __always_inline void fill_block(struct block_record *block, const struct request_state *state,
				       __u32 command_flags, __u64 sector, __u32 bytes, __u64 end_ns)
{
	const struct submission *submission = &state->submission;
	block->kind = RECORD_BLOCK;
	block->op = block_op(command_flags);
	block->form = BLOCK_REQUEST;
	block->flags = block_flags(command_flags) | (state->requeued ? BLOCK_REQUEUED : 0) |
		       (state->submitter_known ? 0 : BLOCK_UNATTRIBUTED) | (state->done_bytes ? BLOCK_PARTIAL : 0);
	block->start_ns = state->issued_ns;
	block->duration_ns = end_ns - state->issued_ns;
	block->thread = submission->thread;
	block->process = submission->process;
	block->device = state->device;
	block->bytes = bytes;
	/* The two without a place have a number there that is left from another use, or -1. */
	block->sector = block->op == BLOCK_FLUSH || block->op == BLOCK_OTHER ? 0 : sector;
	block->queued_ns = state->submitter_known ? state->issued_ns - submission->queued_ns : TRACE_NOT_MEASURED_U64;
	block->cause = submission->cause;
}

/* At the end of a request, of which parts may have been completed before. */
static __always_inline void fill_completed(struct block_record *block, const struct request_state *state,
					   struct request *request, __u8 status, __u64 now_ns)
{
	__u64 sector = request->__sector;
	/* Keeps the compiler from choosing between two addresses instead, which the verifier refuses. */
	barrier_var(sector);
	if (state->done_bytes)
		sector = state->sector;
	fill_block(block, state, request->cmd_flags, sector, state->done_bytes + request->__data_len, now_ns);
	block->status = status;
}

static __always_inline void begin_direct_piece(struct block_data_record *piece, const struct request_state *state,
					       const struct block_record *block)
{
	const struct submission *submission = &state->submission;
	struct owner owner = {
		.class = DATA_DIRECT,
		.file = submission->placed ? submission->file : 0,
		.cause = submission->cause,
		.thread = submission->thread,
		.process = submission->process,
	};
	begin_piece(piece, block, &owner, block->sector, submission->offset - state->done_bytes, block->bytes);
}

/*
 * The kernel gives a request out again only when it has ended, so this one has, unseen: on some machines a whole interrupt
 * goes by in which no program of a tracepoint runs (docs/decisions/0006), and the kernel counts no missed run of them. When
 * it ended is not known, and its pages are no longer there to be walked.
 */
static __always_inline void end_was_missed(struct request_state *state)
{
	bool own = state->submission.process == recorder_process;
	state->phase = REQUEST_IDLE;
	count_done(state->device, state->command_flags, state->bytes - state->done_bytes, true, own);
	if (own || !state->wanted)
		return;
	struct block_event event = {};
	fill_block(&event.block, state, state->command_flags, state->sector, state->bytes, state->issued_ns);
	event.block.flags |= BLOCK_END_UNSEEN;
	if (!state->one_direct) {
		send_block(&event.block);
		return;
	}
	begin_direct_piece(&event.piece, state, &event.block);
	send_block_and_piece(&event.block, &event.piece);
}

SEC("tp_btf/block_io_start")
int BPF_PROG(block_io_start, struct request *request)
{
	struct request_queue *queue = request->q;
	struct bio *bio = request->bio;
	struct request_state *state = state_of(request);
	/* A full table is counted when the request is issued. */
	if (!state)
		return 0;
	if (state->phase == REQUEST_ISSUED)
		end_was_missed(state);
	/* start_time_ns of the request may be that of its previous use: kernels differ in when they set it. */
	note_submission(&state->submission, bio, bpf_ktime_get_ns());
	request_begins(state, queue->disk, bio);
	state->phase = REQUEST_SUBMITTED;
	note_flush(queue, request->cmd_flags, &state->submission);
	return 0;
}

static __always_inline void bio_merges(struct bio *bio)
{
	__u64 key = (__u64)bio;
	struct submission submission;
	note_submission(&submission, bio, bpf_ktime_get_ns());
	note_merged(&key, &submission);
}

/* Before 6.5, in place of block_io_start: the request that is made of the bio is not known yet. */
SEC("tp_btf/block_getrq")
int BPF_PROG(block_getrq, struct bio *bio)
{
	__u64 key = (__u64)bio;
	struct submission submission;
	note_submission(&submission, bio, bpf_ktime_get_ns());
	bpf_map_update_elem(&merged_submissions, &key, &submission, BPF_ANY);
	note_flush(bio->bi_bdev->bd_disk->queue, bio->bi_opf, &submission);
	return 0;
}

SEC("tp_btf/block_bio_backmerge")
int BPF_PROG(block_bio_backmerge, struct bio *bio)
{
	bio_merges(bio);
	return 0;
}

SEC("tp_btf/block_bio_frontmerge")
int BPF_PROG(block_bio_frontmerge, struct bio *bio)
{
	bio_merges(bio);
	return 0;
}

/* The bios of a request join another request; the request itself is given back without a completion. */
SEC("tp_btf/block_rq_merge")
int BPF_PROG(block_rq_merge, struct request *request)
{
	__u64 key = (__u64)request;
	struct request_state *state = bpf_map_lookup_elem(&requests, &key);
	if (!state || state->phase == REQUEST_IDLE)
		return 0;
	state->phase = REQUEST_IDLE;
	note_merged(&state->first_bio, &state->submission);
	return 0;
}

/* Of a request whose start was not seen: before 6.5, what its bio told; of a flush, the last one who wanted it. */
static __always_inline void find_submission(struct request_state *state, struct request_queue *queue, struct bio *bio,
					    __u32 command_flags, __u64 now_ns)
{
	__u64 queue_key = (__u64)queue, bio_key = (__u64)bio;
	bool is_flush = (command_flags & REQUEST_OP_MASK) == REQUEST_OP_FLUSH;
	struct submission *found = is_flush ? bpf_map_lookup_elem(&flush_submissions, &queue_key)
					    : bpf_map_lookup_elem(&merged_submissions, &bio_key);
	request_begins(state, queue->disk, bio);
	if (!found) {
		note_submission(&state->submission, bio, now_ns);
		state->submission.direct = 0;
		state->submitter_known = 0;
		return;
	}
	state->submission = *found;
	if (!is_flush)
		bpf_map_delete_elem(&merged_submissions, &bio_key);
}

static __always_inline void note_issue(struct request_state *state, struct request *request, const struct bio *bio)
{
	__u32 command_flags = request->cmd_flags;
	state->sector = request->__sector;
	state->command_flags = command_flags;
	state->bytes = request->__data_len;
	state->wanted = is_wanted(state, request);
	state->one_direct = state->submission.direct && (__u64)bio == state->first_bio && bio && !bio->bi_next &&
			    moves_data(command_flags);
}

SEC("tp_btf/block_rq_issue")
int BPF_PROG(block_rq_issue, struct request *request)
{
	__u64 now_ns = bpf_ktime_get_ns();
	struct request_queue *queue = request->q;
	struct bio *bio = request->bio;
	struct request_state *state = state_of(request);
	if (!state) {
		count_loss(RECORD_BLOCK, now_ns);
		return 0;
	}
	/* Before 6.5, and where the device makes a request of its own, it was not seen to start. */
	if (state->phase == REQUEST_ISSUED && !state->requeued)
		end_was_missed(state);
	if (state->phase == REQUEST_IDLE)
		find_submission(state, queue, bio, request->cmd_flags, now_ns);
	state->phase = REQUEST_ISSUED;
	state->issued_ns = now_ns;
	/* Of one that a device sent back after a part, what it was at first stays. */
	if (!state->done_bytes)
		note_issue(state, request, bio);
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

/* The hot path: one bio of direct I/O. If it was completed in parts, it is what is left of it now. */
static __always_inline void send_direct(const struct request_state *state, struct request *request, __u8 status,
					__u64 now_ns)
{
	struct block_event *event = reserve_event(sizeof(struct block_event), RECORD_BLOCK, now_ns);
	if (!event) {
		count_full_ring(RECORD_BLOCK_DATA, now_ns);
		return;
	}
	fill_completed(&event->block, state, request, status, now_ns);
	begin_direct_piece(&event->piece, state, &event->block);
	submit_event(event);
}

/* The two programs at the end of a request, of which one can interrupt the other. */
enum completing_program {
	FIRST_PROGRAM,
	SECOND_PROGRAM,
	COMPLETING_PROGRAMS,
};

/*
 * Where a request is walked: the stack has no room for it before 6.12. The kernel never runs a program twice at a time on a
 * CPU, so this is one request's.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COMPLETING_PROGRAMS);
	__type(key, __u32);
	__type(value, struct walk);
} request_walk SEC(".maps");

/* Returns true if the data is the recorder's own. */
static __always_inline bool send_walk(const struct request_state *state, struct request *request, __u8 status,
				      __u64 now_ns, __u32 program)
{
	struct bio *bio = request->bio;
	__u64 key = (__u64)bio, first_bio = state->first_bio;
	struct walk *walk = bpf_map_lookup_elem(&request_walk, &program);
	if (!walk)
		return false;
	__builtin_memset(walk, 0, sizeof(*walk));
	walk->submission = state->submission;
	walk->bio = key;
	walk->bio_flags = bio->bi_opf;
	walk->left = bio->bi_iter.bi_size;
	walk->vector = bio->bi_iter.bi_idx;
	walk->vector_done = bio->bi_iter.bi_bvec_done;
	walk->vectors = bio->bi_io_vec;
	walk->sector = request->__sector;
	fill_completed(&walk->block, state, request, status, now_ns);
	walk->block.flags |= bio->bi_next ? BLOCK_MERGED : 0;
	if (key != first_bio) {
		/* Something was merged in front of the bio that the request was made for, or that one is done. */
		if (!state->done_bytes)
			bpf_map_update_elem(&merged_submissions, &first_bio, &walk->submission, BPF_ANY);
		take_merged(&walk->submission, key);
	}
	return send_pieces(walk);
}

/* Returns true if the request was the recorder's own, of which nothing is sent. */
static __always_inline bool send_request(const struct request_state *state, struct request *request, __u8 status,
					 __u64 now_ns, __u32 program)
{
	struct bio *bio = request->bio;
	if (state->submission.process == recorder_process)
		return true;
	if (!state->wanted)
		return false;
	if (bio && moves_data(request->cmd_flags)) {
		if (bio->bi_next || !state->submission.direct || (__u64)bio != state->first_bio)
			return send_walk(state, request, status, now_ns, program);
		send_direct(state, request, status, now_ns);
		return false;
	}
	struct block_record block = {};
	fill_completed(&block, state, request, status, now_ns);
	send_block(&block);
	return false;
}

/* A part of a request is done. What is to come begins where it ends. */
static __always_inline void part_is_done(struct request_state *state, struct request *request, __u32 bytes)
{
	struct bio *bio = request->bio;
	state->done_bytes += bytes;
	if ((__u64)bio == state->first_bio && bytes < bio->bi_iter.bi_size)
		state->submission.offset += bytes;
}

/* The request that the first program has seen to its end, until the second has learned of it. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} seen_to_end SEC(".maps");

SEC("tp_btf/block_rq_complete")
int BPF_PROG(block_rq_complete, struct request *request, __u8 status, unsigned int bytes)
{
	__u64 key = (__u64)request;
	__u32 zero = 0, command_flags = request->cmd_flags;
	__u64 *seen = bpf_map_lookup_elem(&seen_to_end, &zero);
	struct request_state *state = bpf_map_lookup_elem(&requests, &key);
	/* The last part ends a request, and an error does, whatever was transferred. */
	bool ends = status || bytes >= request->__data_len;
	bool own = false;
	if (seen)
		*seen = key;
	if (!state) {
		/* It was in flight when recording began, or the table was full. */
		count_done(device_number(request->q->disk), command_flags, bytes, ends, false);
		return 0;
	}
	__u8 phase = state->phase;
	if (phase == REQUEST_ISSUED && ends)
		own = send_request(state, request, status, bpf_ktime_get_ns(), FIRST_PROGRAM);
	else if (phase == REQUEST_ISSUED)
		part_is_done(state, request, bytes);
	/* One that never was issued asked for a flush only. One with data and a flush ends a second time, after the flush. */
	if (ends)
		state->phase = REQUEST_IDLE;
	count_done(state->device, command_flags, bytes, ends && phase != REQUEST_IDLE, own);
	return 0;
}

__u64 nested_ends; /* runs of the first that the kernel left out, and the second made up for */

/*
 * Attached behind the first, for what that one misses: an interrupt of a disk may come while the first runs for another
 * request, and the kernel then leaves out the first but not this one. Parts of a request that goes on are left to the first.
 */
SEC("tp_btf/block_rq_complete")
int BPF_PROG(block_rq_complete_nested, struct request *request, __u8 status, unsigned int bytes)
{
	__u64 key = (__u64)request;
	__u32 zero = 0;
	__u64 *seen = bpf_map_lookup_elem(&seen_to_end, &zero);
	if (seen && *seen == key) {
		*seen = 0;
		return 0;
	}
	struct request_state *state = bpf_map_lookup_elem(&requests, &key);
	if (!state || state->phase != REQUEST_ISSUED || (!status && bytes < request->__data_len))
		return 0;
	__sync_fetch_and_add(&nested_ends, 1);
	bool own = send_request(state, request, status, bpf_ktime_get_ns(), SECOND_PROGRAM);
	state->phase = REQUEST_IDLE;
	count_done(state->device, request->cmd_flags, bytes, true, own);
	return 0;
}

/*
 * At the end of recording, over `requests`: those that have ended unseen and that the kernel has not given out again. The
 * time of the issue tells whether it did so between the two looks.
 */
SEC("iter/bpf_map_elem")
int find_ended_requests(struct bpf_iter__bpf_map_elem *context)
{
	__u64 *entry = context->key;
	if (!entry)
		return 0;
	__u64 key = *entry;
	struct request_state *state = bpf_map_lookup_elem(&requests, &key);
	if (!state || state->phase != REQUEST_ISSUED)
		return 0;
	__u64 issued_ns = state->issued_ns;
	int references = BPF_CORE_READ((struct request *)key, ref.counter);
	barrier();
	if (!references && state->phase == REQUEST_ISSUED && state->issued_ns == issued_ns)
		end_was_missed(state);
	return 0;
}

// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Bios of bio-based block devices (zram, device mapper, md), from submission to completion -> BLOCK and BLOCK_DATA records.
 *
 * A bio of a request-based device is only noted here, for the request that it will be in, and charged to its thread as the
 * kernel charges it.
 */
#include "block_pieces.bpf.h"
#include "block_totals.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct bio_state {
	struct submission submission;
	__u64 sector;
	__u32 bytes;
	__u32 device;
	__u32 flags; /* bi_opf */
	__u32 vector; /* position in the pages; a driver may move it on */
	__u32 vector_done;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, REQUESTS_IN_FLIGHT_MAX);
	__type(key, __u64);
	__type(value, struct bio_state);
} bios SEC(".maps");

/* What submit_bio charges a thread with for reads, and direct I/O for writes. */
static __always_inline void charge(const struct bio *bio)
{
	__u32 flags = bio->bi_opf;
	struct account *account = account_of(ACCOUNT_SEEN);
	if (!account)
		return;
	if ((flags & REQUEST_OP_MASK) == REQUEST_OP_READ)
		account->read_bytes += bio->bi_iter.bi_size;
	else if (is_direct_write(flags))
		account->write_bytes += bio->bi_iter.bi_size;
}

static __always_inline void bio_begins(struct bio *bio, struct gendisk *disk, struct task_state *task)
{
	__u64 key = (__u64)bio;
	struct bio_state state = {
		.sector = bio->bi_iter.bi_sector,
		.bytes = bio->bi_iter.bi_size,
		.device = device_number(disk),
		.flags = bio->bi_opf,
		.vector = bio->bi_iter.bi_idx,
		.vector_done = bio->bi_iter.bi_bvec_done,
	};
	note_submission(&state.submission, bio, bpf_ktime_get_ns());
	if (bpf_map_update_elem(&bios, &key, &state, BPF_ANY))
		count_loss(RECORD_BLOCK, state.submission.queued_ns);
	if (task && state.submission.placed) {
		task->direct_bio = key;
		task->direct_end = state.submission.offset + state.bytes;
	}
}

SEC("tp_btf/block_bio_queue")
int BPF_PROG(block_bio_queue, struct bio *bio)
{
	struct gendisk *disk = bio->bi_bdev->bd_disk;
	/* What a driver submits in turn to another device is part of what was submitted to it. */
	bool is_part = bpf_get_current_task_btf()->bio_list;
	struct task_state *state = running_state();
	if (state && !is_part) {
		note_direct(bio, state);
		charge(bio);
	}
	if (disk->fops->submit_bio)
		bio_begins(bio, disk, state);
	return 0;
}

static __always_inline void fill_block(struct block_record *block, const struct bio_state *state, __u8 status,
				       __u64 now_ns)
{
	const struct submission *submission = &state->submission;
	block->kind = RECORD_BLOCK;
	block->op = block_op(state->flags);
	block->form = BLOCK_BIO;
	block->status = status;
	block->flags = block_flags(state->flags);
	/* It is handed to the driver where it is submitted. */
	block->start_ns = submission->queued_ns;
	block->duration_ns = now_ns - submission->queued_ns;
	block->thread = submission->thread;
	block->process = submission->process;
	block->device = state->device;
	block->bytes = state->bytes;
	block->sector = state->sector;
	block->queued_ns = 0;
	block->cause = submission->cause;
	/* An empty write asks for a flush only. */
	if (block->op == BLOCK_WRITE && !block->bytes && block->flags & BLOCK_PREFLUSH)
		block->op = BLOCK_FLUSH;
}

/* Returns true if the data is the recorder's own, of which nothing is sent. */
static __always_inline bool send_bio(struct bio *bio, const struct bio_state *state)
{
	struct walk walk = {
		.submission = state->submission,
		.bio = (__u64)bio,
		.bio_flags = state->flags,
		.left = state->bytes,
		.vector = state->vector,
		.vector_done = state->vector_done,
		.vectors = bio->bi_io_vec,
		.sector = state->sector,
		.single = 1,
	};
	fill_block(&walk.block, state, bio->bi_status, bpf_ktime_get_ns());
	if (state->submission.process == recorder_process)
		return true;
	if (filter_device && filter_device != state->device && filter_device != bio->bi_bdev->bd_dev)
		return false;
	if (state->bytes && moves_data(state->flags))
		return send_pieces(&walk);
	send_block(&walk.block);
	return false;
}

SEC("tp_btf/block_bio_complete")
int BPF_PROG(block_bio_complete, struct request_queue *queue, struct bio *bio)
{
	__u64 key = (__u64)bio;
	struct bio_state *state = bpf_map_lookup_elem(&bios, &key);
	if (!state)
		return 0;
	bool own = send_bio(bio, state);
	count_done(state->device, state->flags, state->bytes, true, own);
	bpf_map_delete_elem(&bios, &key);
	return 0;
}

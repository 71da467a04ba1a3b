/* SPDX-License-Identifier: Apache-2.0 OR BSD-2-Clause */
/*
 * The thread that submits a bio -> what is kept of it until the bio is done: who it is, what it runs, and, of direct I/O,
 * the place in the file, which nothing tells later.
 */
#ifndef FLEXTRACE_BLOCK_SUBMISSION_BPF_H
#define FLEXTRACE_BLOCK_SUBMISSION_BPF_H

#include "async_operation.bpf.h"
#include "block_flags.bpf.h"
#include "folio.bpf.h"
#include "page_fault.bpf.h"

struct submission {
	__u64 queued_ns;
	__u64 cause;
	__u64 inode; /* of the running operation, as a pointer; to compare only */
	__u64 offset; /* of direct I/O */
	__u32 file; /* of the running operation */
	__u32 thread;
	__u32 process;
	__u8 traced;
	__u8 direct;
	__u8 placed; /* offset is known */
	__u8 kernel_thread;
};

/*
 * Where in the file a bio ends that direct I/O has just made; 0 = cannot be told. What is read may be anything: it is what
 * it is taken for only if it leads to the file of the running operation.
 */
static __always_inline __u64 end_in_iomap(void *private, __u64 file_pointer)
{
	struct iomap_dio *dio = private;
	struct kiocb *kiocb = NULL;
	struct file *file = NULL;
	if (!bpf_core_type_exists(struct iomap_dio))
		return 0;
	bpf_probe_read_kernel(&kiocb, sizeof(kiocb), &dio->iocb);
	bpf_probe_read_kernel(&file, sizeof(file), &kiocb->ki_filp);
	if (!file || (__u64)file != file_pointer)
		return 0;
	return BPF_CORE_READ(kiocb, ki_pos) + BPF_CORE_READ(dio, size);
}

static __always_inline __u64 end_in_btrfs(struct bio *bio, const struct task_state *state)
{
	if (!bpf_core_field_exists(((struct btrfs_bio *)NULL)->inode) ||
	    !bpf_core_field_exists(((struct btrfs_bio *)NULL)->file_offset))
		return 0;
	struct btrfs_bio *around = (void *)bio - bpf_core_field_offset(struct btrfs_bio, bio);
	struct btrfs_inode *inode = BPF_CORE_READ(around, inode);
	if (!inode || (__u64)&inode->vfs_inode != state->inode_pointer)
		return 0;
	return BPF_CORE_READ(around, file_offset) + bio->bi_iter.bi_size;
}

/* Of a bio of direct I/O on a block device, which may be a partition. */
static __always_inline __u64 end_in_device(struct bio *bio)
{
	__u64 first_sector = BPF_CORE_READ(bio, bi_bdev, bd_start_sect);
	return ((bio->bi_iter.bi_sector - first_sector) << SECTOR_SHIFT) + bio->bi_iter.bi_size;
}

/* Whether the first page of a bio is in the page cache of an inode. */
static __always_inline bool is_cached_page(struct bio *bio, __u64 inode_pointer)
{
	/* Before 6.2 the verifier lets nobody add to a pointer that it knows. */
	struct bio_vec *vectors = BPF_CORE_READ(bio, bi_io_vec);
	struct folio *folio = folio_of(BPF_CORE_READ(&vectors[bio->bi_iter.bi_idx], bv_page));
	struct address_space *mapping = BPF_CORE_READ(folio, mapping);
	struct inode *inode = (struct inode *)inode_pointer;
	return mapping && mapping == BPF_CORE_READ(inode, i_mapping);
}

/* Of a part that was cut off the front of a bio: bi_private then is that bio, with what is left of it. */
static __always_inline __u64 end_of_front(struct bio *bio, __u64 file_pointer)
{
	struct bio *whole = bio->bi_private;
	if (!whole || BPF_CORE_READ(whole, bi_io_vec) != BPF_CORE_READ(bio, bi_io_vec))
		return 0;
	__u64 end = end_in_iomap(BPF_CORE_READ(whole, bi_private), file_pointer);
	return end ? end - BPF_CORE_READ(whole, bi_iter.bi_size) : 0;
}

/* Of what became of the bio that was noted: itself with what is left of it, a part cut off its front, or a whole copy. */
static __always_inline __u64 end_of_noted(struct bio *bio, const struct task_state *state)
{
	struct bio *noted = (struct bio *)state->direct_bio;
	if (!noted || bio == noted)
		return noted ? state->direct_end : 0;
	if (BPF_CORE_READ(noted, bi_io_vec) != BPF_CORE_READ(bio, bi_io_vec))
		return 0;
	__u32 left = BPF_CORE_READ(noted, bi_iter.bi_size);
	if (bio->bi_private == noted)
		return state->direct_end - left;
	return left == bio->bi_iter.bi_size ? state->direct_end : 0;
}

/*
 * Remembers in the thread's state where a bio ends in its file, of which that can only be told before it is split: btrfs'.
 * What is to be written directly goes through the cache there, as it has check sums, but no further than the operation;
 * what is read through the cache is read ahead.
 */
static __always_inline void note_direct(struct bio *bio, struct task_state *state)
{
	state->direct_bio = 0;
	if (!state->id || !(state->descriptor_flags & OPEN_DIRECT) || has_request_flag(bio->bi_opf, __REQ_META))
		return;
	__u64 end = end_in_btrfs(bio, state);
	bool is_read = (bio->bi_opf & REQUEST_OP_MASK) == REQUEST_OP_READ;
	if (!end || (is_read && is_cached_page(bio, state->inode_pointer)))
		return;
	state->direct_end = end;
	state->direct_bio = (__u64)bio;
}

static __always_inline __u64 end_in_file(struct bio *bio, __u64 file_pointer)
{
	__u64 end = end_in_iomap(bio->bi_private, file_pointer);
	return end ? end : end_of_front(bio, file_pointer);
}

static __always_inline bool may_be_direct(const struct bio *bio)
{
	return bio->bi_iter.bi_size && moves_data(bio->bi_opf) && !has_request_flag(bio->bi_opf, __REQ_META);
}

static __always_inline void place_at_end(struct submission *submission, const struct bio *bio, __u64 end)
{
	submission->direct = 1;
	submission->placed = end != 0;
	submission->offset = end - bio->bi_iter.bi_size;
}

/* Whether a bio that a thread submits during an operation on a file that was opened for direct I/O is part of that. */
static __always_inline void place_direct(struct submission *submission, struct bio *bio, const struct task_state *state,
					 __u64 file_pointer)
{
	__u32 bytes = bio->bi_iter.bi_size;
	if (!may_be_direct(bio))
		return;
	__u64 end = end_in_file(bio, file_pointer);
	if (!end)
		end = end_of_noted(bio, state);
	if (!end) {
		/* A fall back to the cache, or one of the ways of direct I/O that are not known here. */
		struct inode *inode = (struct inode *)state->inode_pointer;
		if (is_cached_page(bio, state->inode_pointer))
			return;
		if (mode_of(inode) == MODE_BLOCK_DEVICE)
			end = end_in_device(bio);
		else if (bytes == state->asked_bytes)
			end = state->position + state->asked_bytes;
	}
	place_at_end(submission, bio, end);
}

/*
 * A bio by which sendfile, splice or copy_file_range writes. It is for the second file, also where its pages are those
 * of the first one, as in direct I/O.
 */
static __always_inline void note_target(struct submission *submission, struct bio *bio, const struct task_state *state)
{
	struct file *file = (struct file *)state->target_file_pointer;
	submission->cause = state->target_id;
	submission->file = state->target_file == FILE_BEYOND ? 0 : state->target_file;
	if (!(state->target_flags & IO_DIRECT) || !may_be_direct(bio))
		return;
	__u64 end = end_in_file(bio, state->target_file_pointer);
	if (end || !is_cached_page(bio, (__u64)BPF_CORE_READ(file, f_mapping, host)))
		place_at_end(submission, bio, end);
}

/* Outside of calls, what a thread reads is read by its page faults. */
static __always_inline void note_fault(struct submission *submission, struct task_struct *task)
{
	struct page_fault *fault = bpf_task_storage_get(&page_faults, task, NULL, 0);
	if (!fault || fault->number != fault_number(task))
		return;
	submission->cause = fault->id;
}

/* The operation of io_submit or io_uring that a bio of direct I/O leads to, NULL if it leads to none. */
static __always_inline struct async_operation *operation_of_bio(struct bio *bio)
{
	struct iomap_dio *dio = bio->bi_private;
	__u64 kiocb = 0;
	if (!dio || !bpf_core_type_exists(struct iomap_dio))
		return NULL;
	bpf_probe_read_kernel(&kiocb, sizeof(kiocb), &dio->iocb);
	return kiocb ? async_operation_of_kiocb(kiocb) : NULL;
}

/*
 * Of several operations that run in turn, in a thread or in a worker in its place, takes the one that the bio leads to, and
 * otherwise the running one; and the thread whose operation it is. Returns the struct file.
 */
static __always_inline __u64 note_operation(struct submission *submission, struct bio *bio,
					    const struct task_state *state)
{
	struct async_operation *operation = operation_of_bio(bio);
	if (!operation)
		operation = async_operation_at(state->request);
	if (!operation)
		return state->file_pointer;
	submission->cause = operation->id;
	submission->file = operation->file;
	submission->inode = operation->inode_pointer;
	submission->thread = operation->thread;
	submission->process = operation->process;
	return operation->file_pointer;
}

/*
 * In io_submit, before 6.6: nothing told when the file system began with the request that this bio is for. What is read may be
 * anything: it is a request if it leads to one that this process has submitted on the same file.
 */
static __always_inline void switch_to_submitted(struct task_state *state, struct bio *bio)
{
	struct iomap_dio *dio = bio->bi_private;
	struct aio_kiocb *kiocb = NULL;
	if (!dio || !bpf_core_type_exists(struct iomap_dio))
		return;
	bpf_probe_read_kernel(&kiocb, sizeof(kiocb), &dio->iocb);
	__u64 request = BPF_CORE_READ(kiocb, ki_res.obj);
	struct async_operation *operation = request ? async_operation_at(request) : NULL;
	if (operation && operation->file_pointer == (__u64)BPF_CORE_READ(kiocb, rw.ki_filp))
		async_switch(state, request);
}

static __always_inline void note_submission(struct submission *submission, struct bio *bio, __u64 now_ns)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct task_state *state = running_state();
	*submission = (struct submission){
		.queued_ns = now_ns,
		.thread = task->pid,
		.process = task->tgid,
		.kernel_thread = !!(task->flags & TASK_KERNEL_THREAD),
	};
	if (!state)
		return;
	if (state->call == CALL_IO_SUBMIT)
		switch_to_submitted(state, bio);
	submission->traced = 1;
	if (state->target_id && writes_data(bio->bi_opf)) {
		note_target(submission, bio, state);
		return;
	}
	submission->cause = state->id;
	if (!state->id) {
		note_fault(submission, task);
		return;
	}
	submission->file = state->file;
	submission->inode = state->inode_pointer;
	__u64 file_pointer = state->request ? note_operation(submission, bio, state) : state->file_pointer;
	if (submission->file == FILE_BEYOND)
		submission->file = 0;
	if (state->descriptor_flags & OPEN_DIRECT)
		place_direct(submission, bio, state, file_pointer);
}

/* Submissions of bios that were merged into a request of another; by bio. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, REQUESTS_IN_FLIGHT_MAX);
	__type(key, __u64);
	__type(value, struct submission);
} merged_submissions __weak SEC(".maps");

/* What nobody traced does is found out without, but not from what an earlier use of the bio has left. */
static __always_inline void note_merged(const __u64 *bio, const struct submission *submission)
{
	if (submission->traced)
		bpf_map_update_elem(&merged_submissions, bio, submission, BPF_ANY);
	else
		bpf_map_delete_elem(&merged_submissions, bio);
}

/* Who submitted a bio that was merged; nobody that is traced if there is no entry. */
static __always_inline void take_merged(struct submission *submission, __u64 bio)
{
	struct submission *merged = bpf_map_lookup_elem(&merged_submissions, &bio);
	if (!merged) {
		*submission = (struct submission){};
		return;
	}
	*submission = *merged;
	bpf_map_delete_elem(&merged_submissions, &bio);
}

#endif /* FLEXTRACE_BLOCK_SUBMISSION_BPF_H */

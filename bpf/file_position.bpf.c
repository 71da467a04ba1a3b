// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Tracepoints and a function inside a running call -> its exact file position, where several threads share one
 * (file_position.bpf.h).
 */
#include "file_position.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* The lock of a shared file position has been fought for and won: nobody else can move the position now. */
SEC("tp_btf/contention_end")
int BPF_PROG(contention_end, void *lock, int error)
{
	struct task_state *state = current_state();
	if (!state || !state->id || state->position_lock != (__u64)lock || error)
		return 0;
	state->position = position_before(state);
	/* The end of the file can still move: through another struct file. */
	state->position_exact = !state->appends;
	return 0;
}

/* The call that runs in this thread on this inode, if its position is still to be found. */
static __always_inline struct task_state *state_without_position(const struct inode *inode)
{
	/* Every read of every task on the machine comes by here. */
	if (!in_flight)
		return NULL;
	struct task_state *state = current_state();
	if (!state || !state->id || !uses_position(state) || state->position_exact ||
	    state->inode_pointer != (__u64)inode)
		return NULL;
	return state;
}

/* A read looks for its pages: it holds the lock of the position by now. */
SEC("tp_btf/mm_filemap_get_pages")
int BPF_PROG(mm_filemap_get_pages, struct address_space *mapping, unsigned long index, unsigned long last_index)
{
	struct task_state *state = state_without_position(mapping->host);
	if (state && !state->positioned) {
		state->position = position_before(state);
		state->position_exact = 1;
	}
	return 0;
}

/*
 * The same for kernels whose reads pass no tracepoint (before 6.11): a read or write is about to be allowed, and holds the
 * lock of the position by now.
 */
SEC("fentry/security_file_permission")
int BPF_PROG(security_file_permission, struct file *file, int mask)
{
	struct task_state *state = in_flight ? current_state() : NULL;
	if (!state || !state->id || state->file_pointer != (__u64)file || state->positioned || state->appends ||
	    !uses_position(state))
		return 0;
	state->position = position_before(state);
	state->position_exact = 1;
	return 0;
}

/* A write has got to its first page: the file system says where, under the lock of the inode. */
static __always_inline void write_begins(const struct inode *inode, __s64 position)
{
	struct task_state *state = state_without_position(inode);
	if (state) {
		state->position = position;
		state->position_exact = 1;
	}
}

SEC("tp_btf/ext4_da_write_begin")
int BPF_PROG(ext4_da_write_begin, struct inode *inode, __s64 position)
{
	write_begins(inode, position);
	return 0;
}

SEC("tp_btf/ext4_write_begin")
int BPF_PROG(ext4_write_begin, struct inode *inode, __s64 position)
{
	write_begins(inode, position);
	return 0;
}

SEC("tp_btf/xfs_file_buffered_write")
int BPF_PROG(xfs_file_buffered_write, struct kiocb *iocb)
{
	/* Of a module's tracepoint the verifier takes no argument to be there. */
	if (!iocb)
		return 0;
	struct file *file = iocb->ki_filp;
	write_begins(file->f_inode, iocb->ki_pos);
	return 0;
}

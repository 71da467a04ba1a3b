/* SPDX-License-Identifier: Apache-2.0 OR BSD-2-Clause */
/*
 * True offset of a call that uses the file position, from what can be read before, during and after it.
 *
 * Every such call moves f_pos forward by the bytes done, under f_pos_lock if the file is shared. The position only grows
 * (but for lseek), so
 *	position at entry <= offset <= position at exit - bytes,
 * and where both sides are equal the offset is exact. If the lock was fought for, contention_end fires with the lock
 * held, and the position read there is exact as well. So is one that is read further inside the call, where the kernel
 * has tracepoints for that (a read that looks for its pages, a write that begins in ext4 or xfs) or, before 6.11, lets a
 * program at a function of its own (that asks whether the call is allowed). Only without those, and where another thread
 * came between entry and lock, or between unlock and exit, do the sides differ: the record then carries
 * IO_OFFSET_INFERRED and the width of the interval, and the recorder finds the place that the other calls leave free
 * (shared_offset.c). With O_APPEND the file's size takes the place of the position at entry, and for a positioned
 * call that appends also at exit.
 */
#ifndef FLEXTRACE_FILE_POSITION_BPF_H
#define FLEXTRACE_FILE_POSITION_BPF_H

#include "file_identity.bpf.h"
#include "io_flags.bpf.h"

/* Of the read and write families. */
static __always_inline bool call_reads(__u32 call)
{
	return call == CALL_READ || call == CALL_PREAD || call == CALL_READV || call == CALL_PREADV ||
	       call == CALL_PREADV2;
}

/* Whether the caller names the offset, and whether the kernel appends whatever the caller names. */
static __always_inline void note_position_rule(struct pt_regs *regs, struct task_state *state, __u32 call)
{
	bool writes = !call_reads(call);
	state->positioned = call == CALL_PREAD || call == CALL_PWRITE || call >= CALL_PREADV;
	/* pwrite on an O_APPEND file appends too (pwrite(2), BUGS), without moving the position. */
	state->appends = writes && (state->descriptor_flags & OPEN_APPEND);
	if (call == CALL_PREADV2 || call == CALL_PWRITEV2) {
		if (regs->r10 == (unsigned long)-1)
			state->positioned = 0;
		if (regs->r9 & RWF_NOAPPEND)
			state->appends = 0;
		if (writes && (regs->r9 & RWF_APPEND))
			state->appends = 1;
	}
}

/* Whether the offset is the kernel's choice, and not the caller's. */
static __always_inline bool uses_position(const struct task_state *state)
{
	return state->call <= CALL_DATA_LAST && (!state->positioned || state->appends);
}

/* Lower bound of the offset of a call without an explicit one: the end of the file if it appends, else the position. */
static __always_inline __s64 position_before(const struct task_state *state)
{
	struct file *file = (struct file *)state->file_pointer;
	struct inode *inode = (struct inode *)state->inode_pointer;
	return state->appends ? read_field(inode, i_size) : read_field(file, f_pos);
}

/* Upper bound of the end of what it moved. */
static __always_inline __s64 position_after(const struct task_state *state)
{
	struct file *file = (struct file *)state->file_pointer;
	/* The descriptor may have been closed meanwhile and its struct file reused. */
	if ((__u64)read_field(file, f_inode) != state->file_inode_pointer)
		return 0;
	struct inode *inode = (struct inode *)state->inode_pointer;
	return state->appends && state->positioned ? read_field(inode, i_size) : read_field(file, f_pos);
}

/* At the end of a call: by how much more than state->position its offset may be; 0 = that is where its data is. */
static __always_inline __u32 position_width(const struct task_state *state, __s64 done)
{
	/* A call that failed moved nothing; a position read under the lock is exact. */
	if (!uses_position(state) || done <= 0 || state->position_exact)
		return 0;
	/* Less than nothing: someone called lseek or truncate; the position at entry is the better guess. */
	return offset_width(position_after(state) - done - state->position);
}

#endif /* FLEXTRACE_FILE_POSITION_BPF_H */

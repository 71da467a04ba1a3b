/* SPDX-License-Identifier: Apache-2.0 OR BSD-2-Clause */
/*
 * A new mapping of a file -> the file's id, under the inode that page faults on the mapping will name.
 *
 * An overlay maps the file below its own (vm_file, set by ovl_mmap), whose inode no descriptor of the program has.
 */
#ifndef FLEXTRACE_MAPPED_FILE_BPF_H
#define FLEXTRACE_MAPPED_FILE_BPF_H

#include "page_cache.bpf.h"

/*
 * An overlay passes a call on to a file of another file system, whose inode no struct file of the program names: it is the
 * inode of equal size that the call is seen to work on. From then on it is known as the same file.
 */
static __always_inline __u32 enter_inode_below(const struct task_state *state, const struct inode *inode)
{
	struct inode *overlay = (struct inode *)state->inode_pointer;
	__u16 mode = inode->i_mode & MODE_TYPE_MASK;
	struct file_key key = {};
	bool runs = state->id || state->call == CALL_MMAP;
	if (!runs || !state->file || state->file == FILE_BEYOND || mode != MODE_REGULAR ||
	    BPF_CORE_READ(overlay, i_sb, s_magic) != OVERLAY_MAGIC || read_field(overlay, i_size) != inode->i_size ||
	    !make_key(inode, mode, &key))
		return 0;
	__u32 file = state->file;
	return enter_second_inode(&key, &file) ? file : 0;
}

static long enter_mapped_inode(struct task_struct *task, struct vm_area_struct *area, void *context)
{
	const __u32 *id = context;
	struct file *file = area->vm_file;
	struct file_key key = {};
	if (!file)
		return 0;
	struct inode *inode = BPF_CORE_READ(file, f_inode);
	__u16 mode = mode_of(inode);
	if (mode == MODE_REGULAR && make_key(inode, mode, &key))
		enter_second_inode(&key, id);
	return 0;
}

/* Where a file of this id has just been mapped. Not inline, so that what it has on the stack is not beside other calls. */
static __attribute__((noinline, unused)) int note_mapping(struct task_struct *task, struct inode *inode, __u32 id,
							  __u64 address)
{
	if (!id || id == FILE_BEYOND || BPF_CORE_READ(inode, i_sb, s_magic) != OVERLAY_MAGIC)
		return 0;
	if (bpf_find_vma(task, address, enter_mapped_inode, &id, 0) == MAPPING_LOCKED)
		count_loss(RECORD_FILE, bpf_ktime_get_ns());
	return 0;
}

#endif /* FLEXTRACE_MAPPED_FILE_BPF_H */

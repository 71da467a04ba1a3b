/* SPDX-License-Identifier: Apache-2.0 OR BSD-2-Clause */
/*
 * A struct file -> its id, kept in the thread's state: the next call is mostly on a file of the last few.
 */
#ifndef FLEXTRACE_KNOWN_FILE_BPF_H
#define FLEXTRACE_KNOWN_FILE_BPF_H

#include "file_identity.bpf.h"

static __always_inline void learn_file(struct known_file *known, struct file *file, struct inode *inode,
				       bool directories)
{
	known->file = identify_file(file, directories, bpf_ktime_get_ns());
	/* Only what is recorded is remembered: the rest has to be counted each time. */
	known->file_pointer = known->file ? (__u64)file : 0;
	known->inode_pointer = (__u64)inode;
	struct inode *data = BPF_CORE_READ(file, f_mapping, host);
	known->data_inode_pointer = (__u64)data;
	known->in_memory = is_in_memory(data);
	known->is_directory = (BPF_CORE_READ(inode, i_mode) & MODE_TYPE_MASK) == MODE_DIRECTORY;
}

/*
 * directories: they are files, too. The file id is 0 if it is none that is recorded; that is counted. descriptor: as files of
 * different ones are kept beside each other, any number will do.
 */
static __always_inline struct known_file *known_file_of(struct task_state *state, struct file *file, __u32 descriptor,
							bool directories)
{
	struct known_file *known = &state->known_files[descriptor % KNOWN_FILES];
	struct inode *inode = read_field(file, f_inode);
	unsigned long inode_number = read_field(inode, i_ino);
	__u32 generation = read_field(inode, i_generation);
	/* A struct file that was freed and reused for another file has another inode, number or generation. */
	if (known->file_pointer != (__u64)file || known->inode_pointer != (__u64)inode ||
	    known->inode_number != inode_number || known->generation != generation) {
		learn_file(known, file, inode, directories);
		known->inode_number = inode_number;
		known->generation = generation;
	}
	return known;
}

#endif /* FLEXTRACE_KNOWN_FILE_BPF_H */

/* SPDX-License-Identifier: Apache-2.0 OR BSD-2-Clause */
/*
 * A struct file -> its id, kept in the thread's state: the next call is mostly on a file of the last few.
 *
 * What is read goes to where it is kept and not over the stack: up to 6.12 functions that call each other have 512 bytes of
 * stack together.
 */
#ifndef FLEXTRACE_KNOWN_FILE_BPF_H
#define FLEXTRACE_KNOWN_FILE_BPF_H

#include "file_identity.bpf.h"

/* In the place of a thread's state where none runs. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct known_file);
} known_file_without_thread __weak SEC(".maps");

/* The place of a file that is in use under this descriptor; as these lie beside each other, any number will do. */
static __always_inline struct known_file *known_file_at(struct task_state *state, __u32 descriptor)
{
	__u32 zero = 0;
	return state ? &state->known_files[descriptor % KNOWN_FILES]
		     : bpf_map_lookup_elem(&known_file_without_thread, &zero);
}

static __always_inline void learn_file(struct known_file *known, struct file *file, __u32 how)
{
	struct inode *inode = (struct inode *)known->inode_pointer;
	__u16 mode = 0;
	known->file = identify_file(file, how, bpf_ktime_get_ns());
	/* Only what is recorded is remembered: the rest has to be counted each time. */
	known->file_pointer = known->file ? (__u64)file : 0;
	bpf_core_read(&known->inode_number, sizeof(known->inode_number), &inode->i_ino);
	bpf_core_read(&known->generation, sizeof(known->generation), &inode->i_generation);
	bpf_core_read(&mode, sizeof(mode), &inode->i_mode);
	known->is_directory = (mode & MODE_TYPE_MASK) == MODE_DIRECTORY;
	bpf_core_read(&known->data_inode_pointer, sizeof(__u64), &file->f_mapping);
	struct address_space *mapping = (struct address_space *)known->data_inode_pointer;
	bpf_core_read(&known->data_inode_pointer, sizeof(__u64), &mapping->host);
	known->in_memory = is_in_memory((struct inode *)known->data_inode_pointer);
}

/* how: IDENTIFY_*. The file id is 0 if it is none that is recorded; that is counted. */
static __always_inline void know_file(struct known_file *known, struct file *file, __u32 how)
{
	struct inode *inode = read_field(file, f_inode);
	__u32 forgotten = ids_forgotten;
	/* A struct file that was freed and reused for another file has another inode, number or generation. */
	if (known->file_pointer == (__u64)file && known->inode_pointer == (__u64)inode &&
	    known->inode_number == read_field(inode, i_ino) && known->generation == read_field(inode, i_generation) &&
	    known->ids_forgotten == forgotten)
		return;
	known->inode_pointer = (__u64)inode;
	known->ids_forgotten = forgotten;
	learn_file(known, file, how);
}

#endif /* FLEXTRACE_KNOWN_FILE_BPF_H */

/* SPDX-License-Identifier: Apache-2.0 OR BSD-2-Clause */
/*
 * The kernel's structures, as far as the BPF programs read them. CO-RE relocates every access by name, so only names and
 * types of the fields matter here, neither order nor offset. Kernel differences stand beside the field they concern.
 */
#ifndef FLEXTRACE_KERNEL_TYPES_H
#define FLEXTRACE_KERNEL_TYPES_H

/* Makes bpf_tracing.h name the registers as the kernel does. */
#define __VMLINUX_H__

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;
enum { false = 0, true = 1 };
#define NULL ((void *)0)

/* The map types, update flags and ring flags that are used; from the kernel's stable user interface (linux/bpf.h). */
enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
	BPF_NOEXIST = 1,
	BPF_F_NO_PREALLOC = 1,
	BPF_LOCAL_STORAGE_GET_F_CREATE = 1,
	BPF_RB_NO_WAKEUP = 1,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct pt_regs {
	unsigned long di, si, dx, r10, r8, r9, ax, orig_ax, sp, bp, ip, cx;
};

struct qstr {
	__u32 len;
	const unsigned char *name;
};

struct super_block {
	__u32 s_dev;
	unsigned long s_magic;
};

struct address_space {
	struct inode *host;
	unsigned long nrpages;
};

struct inode {
	__u16 i_mode;
	__u32 i_rdev;
	unsigned long i_ino;
	__u32 i_generation;
	__s64 i_size;
	struct super_block *i_sb;
	struct address_space *i_mapping;
};

struct dentry {
	struct dentry *d_parent;
	struct qstr d_name;
	struct inode *d_inode;
};

struct vfsmount {
	struct dentry *mnt_root;
};

struct mount {
	struct mount *mnt_parent;
	struct dentry *mnt_mountpoint;
	struct vfsmount mnt;
};

struct path {
	struct vfsmount *mnt;
	struct dentry *dentry;
};

struct mutex {
	long owner;
};

struct file {
	unsigned int f_mode;
	unsigned int f_flags;
	__s64 f_pos;
	struct mutex f_pos_lock;
	struct inode *f_inode;
	struct address_space *f_mapping;
	/* In 6.18 a member of an anonymous union (with __f_path), before that a plain member: CO-RE finds it in both. */
	struct path f_path;
};

struct kiocb {
	struct file *ki_filp;
	__s64 ki_pos;
};

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};

struct files_struct {
	struct fdtable *fdt;
};

struct fs_struct {
	struct path root;
	struct path pwd;
};

struct thread_info {
	__u32 status; /* x86: TS_COMPAT marks a 32-bit system call */
};

struct task_struct {
	struct thread_info thread_info;
	int pid;
	int tgid;
	struct task_struct *real_parent;
	struct files_struct *files;
	struct fs_struct *fs;
	char comm[16];
};

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
	__u64 session_id;
	__u64 seq_num;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

struct gendisk {
	int major;
	int first_minor;
};

struct request_queue {
	/* Since 5.15; rq->rq_disk, which tools used before, is gone since 5.17 (bcc core_fixes.bpf.h). */
	struct gendisk *disk;
};

struct page {
	unsigned long compound_head; /* bit 0 set: a tail page, the rest points to its head */
	struct address_space *mapping;
};

struct bio_vec {
	struct page *bv_page;
};

struct bio {
	struct bio_vec *bi_io_vec;
};

struct request {
	struct request_queue *q;
	__u32 cmd_flags;
	__u32 __data_len;
	__u64 __sector;
	struct bio *bio;
};

#pragma clang attribute pop

#endif /* FLEXTRACE_KERNEL_TYPES_H */

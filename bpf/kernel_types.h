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
	BPF_MAP_TYPE_PERCPU_HASH = 5,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
	BPF_F_NO_PREALLOC = 1,
	BPF_LOCAL_STORAGE_GET_F_CREATE = 1,
	BPF_RB_NO_WAKEUP = 1,
	BPF_RB_FORCE_WAKEUP = 2,
	BPF_RB_AVAIL_DATA = 0,
	BPF_RB_RING_SIZE = 1,
};

/* What else is a number in the kernel; O_* as on the generic architectures. */
enum {
	AT_FDCWD = -100,
	AT_REMOVEDIR = 0x200,
	OPEN_CREATE = 0100, /* O_CREAT, and so on */
	OPEN_TRUNCATE = 01000,
	OPEN_APPEND = 02000,
	OPEN_DSYNC = 010000,
	OPEN_DIRECT = 040000,
	OPEN_SYNC = 04010000,
	OPEN_PATH = 010000000, /* names a file, and cannot move data */
	OPEN_TMPFILE = 020000000, /* __O_TMPFILE: created, without a name */
	TASK_EXITING = 0x4, /* PF_EXITING (include/linux/sched.h) */
	TASK_IO_WORKER = 0x10, /* PF_IO_WORKER: runs what io_uring must not block for */
	TASK_KERNEL_THREAD = 0x200000, /* PF_KTHREAD */
	ENTRY_EXISTS = -17, /* EEXIST of bpf_map_update_elem */
	MAPPING_LOCKED = -16, /* EBUSY of bpf_find_vma: it waits for no lock, and another thread changes the mappings */
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct pt_regs {
	unsigned long di, si, dx, r10, r8, r9, ax, orig_ax, sp, bp, ip, cx;
};

struct qstr {
	__u32 len;
	const unsigned char *name;
};

struct file_system_type {
	int fs_flags;
};

struct super_block {
	__u32 s_dev;
	unsigned long s_flags;
	unsigned long s_magic;
	struct file_system_type *s_type;
};

struct xarray {
	void *xa_head;
};

struct address_space {
	struct inode *host;
	struct xarray i_pages;
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
	__u32 i_ctime_nsec; /* since 6.11; since 6.13 its highest bit is no part of the time */
};

struct dentry {
	struct dentry *d_parent;
	struct qstr d_name;
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
	void *ki_complete; /* NULL: whoever submitted it waits for it */
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

typedef struct {
	int counter;
} atomic_t;

struct signal_struct {
	atomic_t live; /* threads that have not ended */
};

struct task_io_accounting {
	__u64 rchar, wchar, syscr, syscw, read_bytes, write_bytes;
};

struct mm_struct {
	unsigned long start_code;
	struct file *exe_file;
};

struct linux_binprm {
	struct file *file;
};

struct sched_info {
	unsigned long long run_delay; /* ns ready to run without a processor */
};

struct task_struct {
	struct thread_info thread_info;
	struct signal_struct *signal;
	struct task_io_accounting ioac;
	unsigned long min_flt, maj_flt;
	struct sched_info sched_info; /* CONFIG_SCHED_INFO */
	int pid;
	int tgid;
	struct task_struct *real_parent;
	struct mm_struct *mm;
	struct files_struct *files;
	struct fs_struct *fs;
	struct css_set *cgroups;
	char comm[16];
	void *stack;
	unsigned int flags; /* PF_* */
	unsigned int __state; /* TASK_* */
	void *worker_private;
	struct bio_list *bio_list; /* not NULL: a bio is being submitted by this thread */
};

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__task {
	struct task_struct *task;
};

struct bpf_iter__bpf_map_elem {
	void *key; /* NULL after the last one */
};

struct bpf_iter__task_file {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	struct file *file;
};

struct vm_area_struct {
	unsigned long vm_start;
	unsigned long vm_end;
	unsigned long vm_flags;
	unsigned long vm_pgoff;
	struct file *vm_file;
};

struct bpf_iter__task_vma {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	struct vm_area_struct *vma;
};

struct bio;
struct request_queue;

struct block_device_operations {
	void (*submit_bio)(struct bio *bio); /* NULL: the device is request-based */
};

struct gendisk {
	int major;
	int first_minor;
	const struct block_device_operations *fops;
	struct request_queue *queue;
};

struct block_device {
	__u32 bd_dev;
	__u64 bd_start_sect; /* of a partition, on the whole disk */
	struct gendisk *bd_disk;
};

struct request_queue {
	/* Since 5.15; rq->rq_disk, which tools used before, is gone since 5.17 (bcc core_fixes.bpf.h). */
	struct gendisk *disk;
};

struct page {
	unsigned long compound_head; /* bit 0 set: a tail page, the rest points to its head */
};

struct bio_vec {
	struct page *bv_page;
	unsigned int bv_len;
	unsigned int bv_offset;
};

struct bvec_iter {
	__u64 bi_sector;
	unsigned int bi_size;
	unsigned int bi_idx;
	unsigned int bi_bvec_done;
} __attribute__((packed, aligned(4)));

struct bio {
	struct bio *bi_next;
	struct block_device *bi_bdev;
	__u32 bi_opf;
	__u8 bi_status;
	struct bvec_iter bi_iter;
	void *bi_private;
	struct bio_vec *bi_io_vec;
};

struct request {
	struct request_queue *q;
	__u32 cmd_flags;
	__u32 __data_len;
	__u64 __sector;
	struct bio *bio;
	struct block_device *part;
	atomic_t ref; /* 0 from its end on until it is given out again */
};

/* Direct I/O of a file system that uses iomap: bi_private of its bios. */
struct iomap_dio {
	struct kiocb *iocb;
	__u64 size; /* bytes from ki_pos on that have been submitted, or were holes */
};

struct btrfs_root {
	__u32 anon_dev;
};

struct btrfs_inode {
	struct btrfs_root *root;
	struct inode vfs_inode;
};

/* What surrounds a bio of btrfs. */
struct btrfs_bio {
	struct btrfs_inode *inode;
	__u64 file_offset;
	struct bio bio;
};

struct folio {
	struct address_space *mapping;
	unsigned long index; /* in pages */
	unsigned int _nr_pages; /* of a large folio; since 6.15 */
	unsigned int _folio_nr_pages; /* the same, before that */
};

/* Flags are a word in a struct of its own since 6.18. */
struct memdesc_flags {
	unsigned long f;
};
struct folio___since_6_18 {
	struct memdesc_flags flags;
};
struct folio___before_6_18 {
	unsigned long flags;
};

enum pageflags {
	PG_uptodate,
	PG_head,
	PG_swapcache,
	PG_swapbacked,
};

struct xa_node {
	unsigned char shift;
	void *slots[64]; /* [16] where CONFIG_BASE_SMALL is set */
};

struct list_head {
	struct list_head *next;
};

struct kernfs_node {
	__u64 id;
};

struct cgroup_root {
	int hierarchy_id;
};

struct cgroup_subsys_state {
	struct cgroup *cgroup;
	struct cgroup_subsys_state *parent;
};

struct cgroup {
	struct cgroup_subsys_state self;
	struct kernfs_node *kn;
	struct cgroup_root *root;
};

struct css_set {
	struct cgroup *dfl_cgrp;
	struct list_head cgrp_links;
};

struct cgrp_cset_link {
	struct cgroup *cgrp;
	struct list_head cgrp_link;
};

#pragma clang attribute pop

#endif /* FLEXTRACE_KERNEL_TYPES_H */

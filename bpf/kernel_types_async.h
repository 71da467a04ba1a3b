/* SPDX-License-Identifier: Apache-2.0 OR BSD-2-Clause */
/*
 * The kernel's structures of io_uring and AIO, as kernel_types.h has the others.
 */
#ifndef FLEXTRACE_KERNEL_TYPES_ASYNC_H
#define FLEXTRACE_KERNEL_TYPES_ASYNC_H

#include "kernel_types.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct io_cqe {
	__u64 user_data;
	__s32 res;
	int fd; /* until the file is assigned: the descriptor, or the index of a registered file */
};

struct io_wq_work_node {
	struct io_wq_work_node *next;
};

struct io_wq_work {
	struct io_wq_work_node list;
};

struct io_kiocb {
	struct file *file;
	__u8 opcode;
	__u32 flags; /* u64 since 6.10; only low bits are read */
	struct io_cqe cqe;
	struct io_ring_ctx *ctx;
	struct io_kiocb *link;
	struct io_wq_work work;
};

/* Of registered files: since 6.13 nodes, before that a table. The lowest bits of file_ptr are flags. */
struct io_rsrc_node {
	unsigned long file_ptr;
};

struct io_rsrc_data {
	unsigned int nr;
	struct io_rsrc_node **nodes;
};

struct io_fixed_file {
	unsigned long file_ptr;
};

struct io_file_table {
	struct io_rsrc_data data;
	struct io_fixed_file *files;
};

struct io_submit_link {
	struct io_kiocb *head;
	struct io_kiocb *last;
};

struct io_submit_state {
	struct io_submit_link link;
};

struct io_ring_ctx {
	unsigned int flags;
	struct list_head defer_list; /* requests that wait for all before them, and those behind */
	struct io_file_table file_table;
	unsigned int nr_user_files; /* before 6.13 */
	struct io_submit_state submit_state;
};

struct io_uring_cqe {
	__s32 res;
	__u32 flags;
};

/* What overlays a struct io_kiocb, by operation. */
struct io_rw {
	struct kiocb kiocb;
	__u64 addr;
	__u32 len;
	__u32 flags;
};

struct io_sync {
	__s64 len;
	__s64 off;
	int flags;
	int mode;
};

struct io_fadvise {
	__u64 offset;
	__u64 len; /* u32 before 6.11 */
	__u32 advice;
};

struct io_ftrunc {
	__s64 len;
};

struct filename {
	const char *name;
};

struct open_how {
	__u64 flags;
	__u64 mode;
};

struct io_open {
	__u32 file_slot;
	struct filename *filename;
	struct open_how how;
};

struct io_close {
	int fd;
	__u32 file_slot;
};

struct io_rename {
	int old_dfd;
	int new_dfd;
	struct filename *oldpath;
	struct filename *newpath;
	int flags;
};

struct io_unlink {
	int dfd;
	int flags;
	struct filename *filename;
};

struct io_mkdir {
	int dfd;
	__u16 mode;
	struct filename *filename;
};

struct io_link {
	int old_dfd;
	int new_dfd;
	struct filename *oldpath;
	struct filename *newpath;
};

struct io_splice {
	__s64 off_out;
	__s64 off_in;
	__u64 len;
	int splice_fd_in;
	unsigned int flags;
};

struct io_worker {
	struct io_wq_work *cur_work;
};

struct io_event {
	__u64 obj;
};

struct aio_kiocb {
	struct kiocb rw;
	struct io_event ki_res;
};

/* Since 6.8. */
struct backing_aio {
	struct kiocb iocb;
	struct kiocb *orig_iocb;
};

#pragma clang attribute pop

#endif /* FLEXTRACE_KERNEL_TYPES_ASYNC_H */

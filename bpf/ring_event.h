/* SPDX-License-Identifier: Apache-2.0 OR BSD-2-Clause */
/*
 * What the BPF programs put into the rings for the recorder: trace records as they will stand in the file, and names.
 * Also the two small structures that both sides share besides the rings.
 */
#ifndef FLEXTRACE_RING_EVENT_H
#define FLEXTRACE_RING_EVENT_H

#include "trace_format.h"

enum {
	NAME_BYTES_MAX = 4096, /* of a path, as PATH_MAX */
	NAME_COMPONENT_MAX = 256, /* of one component, as NAME_MAX rounded up */
	RING_NAME = 128, /* first byte of a struct ring_name; record kinds stay below */
};

enum name_role {
	NAME_OF_FILE = 1, /* full path of the FILE record with the same file id, sent right after it */
	NAME_DIRECTORY = 2, /* where the next NAME_ARGUMENT of this thread starts, if that is relative */
	NAME_ARGUMENT = 3, /* a path as the program gave it: unlink, first argument of rename */
	NAME_NEW_DIRECTORY = 4,
	NAME_NEW_ARGUMENT = 5, /* second argument of rename */
};

/* Text stands at [start, start + bytes) of text. */
struct ring_name {
	__u8 kind; /* RING_NAME */
	__u8 role; /* enum name_role */
	__u16 start;
	__u16 bytes;
	__u16 reserved;
	__u64 time_ns; /* sorts as a record's end */
	__u32 file;
	__u32 thread;
	char text[NAME_BYTES_MAX + NAME_COMPONENT_MAX];
};

_Static_assert(sizeof(struct ring_name) == 24 + NAME_BYTES_MAX + NAME_COMPONENT_MAX, "ring_name size");

/* Which call a system call number stands for: the recorder fills the table, so that the programs know no numbers. */
enum call {
	CALL_NONE = 0,
	CALL_READ,
	CALL_WRITE,
	CALL_PREAD,
	CALL_PWRITE,
	CALL_READV,
	CALL_WRITEV,
	CALL_PREADV,
	CALL_PWRITEV,
	CALL_PREADV2,
	CALL_PWRITEV2,
	CALL_DATA_LAST = CALL_PWRITEV2,
	CALL_CLOSE,
	CALL_FSYNC,
	CALL_FDATASYNC,
	CALL_SYNC_FILE_RANGE,
	CALL_FTRUNCATE,
	CALL_FALLOCATE,
	CALL_FADVISE,
	CALL_DESCRIPTOR_LAST = CALL_FADVISE,
	CALL_OPEN,
	CALL_CREAT,
	CALL_OPENAT,
	CALL_OPENAT2,
	CALL_OPEN_LAST = CALL_OPENAT2,
	CALL_UNLINK,
	CALL_UNLINKAT,
	CALL_RENAME,
	CALL_RENAMEAT,
	CALL_RENAMEAT2,
	CALL_UNRECORDED, /* moves data, and is only counted: sendfile, splice, copy_file_range, io_submit, io_uring */
};

enum { SYSCALL_NUMBERS_MAX = 512 };

/* What was dropped on one CPU of one record kind. */
struct loss {
	__u64 count;
	__u64 first_ns;
	__u64 last_ns;
};

/* Operations that are left out on purpose, counted per CPU. */
enum skip {
	SKIP_NOT_A_FILE = 0, /* socket, pipe, terminal, anonymous inode */
	SKIP_PSEUDO_FILE = 1, /* proc, sysfs and the like */
	SKIP_COMPAT = 2, /* 32-bit system call */
	SKIP_OWN_BLOCK = 3, /* block requests of the recorder's own trace file */
	SKIP_UNRECORDED_CALL = 4, /* CALL_UNRECORDED that moved data or submitted operations */
	SKIP_KINDS,
};

#endif /* FLEXTRACE_RING_EVENT_H */

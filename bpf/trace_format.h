/* SPDX-License-Identifier: Apache-2.0 OR BSD-2-Clause */
/*
 * The trace file (NAME.iotrace), version 1: the contract between the BPF programs and the recorder (which write it),
 * the replay engine (which reads it) and characterize/layout.py (which must agree; tests/characterize/test_layout.py
 * compares).
 *
 *	offset 0     struct trace_header, 4096 bytes
 *	offset 4096  header.record_count records of 64 bytes
 *	optional     the JSON block, if it did not fit into the header (header.json_offset says where it is)
 *
 * Everything is little-endian. Records are appended, never changed. While a trace is being written the header has
 * TRACE_INCOMPLETE set; a reader then takes every whole record up to the end of the file. A reader refuses a file whose
 * major version it does not know, and ignores record kinds and flags of a newer minor version that it does not know.
 *
 * Order: the records of one thread stand in the order of their starts, but for SOURCE_AIO, IO_URING and MMAP, which stand
 * where they ended. Across threads no order is promised (recordings are near the order of the ends). FILE and TASK records stand before the first record that names them.
 *
 * All enums are append-only: never renumber, never reuse a number.
 */
#ifndef FLEXTRACE_TRACE_FORMAT_H
#define FLEXTRACE_TRACE_FORMAT_H

/* The BPF programs bring their own __u8 ... __s64 (kernel_types.h). */
#ifndef FLEXTRACE_BPF_PROGRAM
#include <linux/types.h>
#endif

#define TRACE_MAGIC "FLEXTRC1" /* 8 bytes, no terminating zero in the file */

enum {
	TRACE_VERSION_MAJOR = 1,
	TRACE_VERSION_MINOR = 12,
	TRACE_HEADER_BYTES = 4096,
	TRACE_RECORD_BYTES = 64,
	TRACE_JSON_BYTES_MAX = 3072, /* what fits inside the header */
	TRACE_TEXT_BYTES = 48,	     /* text carried by one RECORD_TEXT */
	TRACE_PATH_BYTES_MAX = 4096,
	TRACE_KINDS_MAX = 16, /* length of the per-kind tables in the header */
	/* io_record.processor_share; 0 = not measured */
	PROCESSOR_SHARE_NONE = 1,
	PROCESSOR_SHARE_ALL = 255,
	/* io_record.flags, and those of a FSYNC or FDATASYNC: where the run delay stands in them; 0 = not measured */
	IO_RUN_DELAY_SHIFT = 18,
	IO_RUN_DELAY_NONE = 1,
	IO_RUN_DELAY_ALL = 63,
	/* io_record.flags: where faults stand in it */
	IO_FAULTS_SHIFT = 24,
	IO_FAULTS_MAX = 255, /* or more */
	/*
	 * fileop_record.length of a RENAME or UNLINK, since 1.12: where the file id stands that carries the old name in its
	 * FILE record, of a file that may have several; 0 = not said, as up to the first LINK of a trace
	 */
	FILEOP_NAME_SHIFT = 32,
	/* resident_record.large_folios; 0 = not known */
	LARGE_FOLIOS_NONE = 1,
	LARGE_FOLIOS_ALL = 255,
};

enum trace_header_flag {
	TRACE_INCOMPLETE = 1u << 0, /* not closed cleanly: record_count and json are not final */
	TRACE_LOST = 1u << 1,	    /* at least one record was lost; see lost[], GAP records and json.lost */
	TRACE_UNTIMED = 1u << 2,    /* synthetic, has not run yet: start_ns is only each thread's order, durations are 0 */
	TRACE_PLANNED = 1u << 3,    /* altered, has not run yet: times are its parent's, a schedule and not a measurement */
};

/* The first byte of every record. 0 is never written, so that a hole in a file is recognised. */
enum record_kind {
	RECORD_IO = 1,	   /* struct io_record */
	RECORD_FILEOP = 2, /* struct fileop_record */
	RECORD_FILE = 3,   /* struct file_record, followed by its path in TEXT records */
	RECORD_TASK = 4,   /* struct task_record */
	RECORD_BLOCK = 5,  /* struct block_record */
	RECORD_GAP = 6,	   /* struct gap_record */
	RECORD_TEXT = 7,   /* struct text_record */
	RECORD_BLOCK_DATA = 8, /* struct block_data_record, since 1.1 */
	RECORD_RESIDENT = 9,   /* struct resident_record, since 1.1 */
	RECORD_WAKE = 10,      /* struct wake_record, since 1.3 */
	RECORD_HOLE = 11,      /* struct hole_record, since 1.10 */
};

enum io_op {
	IO_READ = 1,
	IO_WRITE = 2,
};

enum record_source {
	SOURCE_UNKNOWN = 0,   /* foreign traces */
	SOURCE_SYSCALL = 1,   /* read/write families, and every FILEOP system call */
	SOURCE_AIO = 2,	      /* io_submit */
	SOURCE_IO_URING = 3,  /* thread: who submitted, or made the ring if the kernel polls for it (SQPOLL) */
	SOURCE_MMAP = 4,      /* page fault */
	SOURCE_SPLICE = 5,    /* sendfile, splice, copy_file_range: one record for each side that is a file */
	SOURCE_SYNTHETIC = 6, /* made by willy or alter, has not run */
};

/* io_record.flags and fileop_record.flags. */
enum io_flag {
	IO_DIRECT = 1u << 0,	      /* O_DIRECT was in force */
	IO_APPEND = 1u << 1,	      /* O_APPEND or RWF_APPEND: offset is where the kernel put the data */
	IO_SYNC = 1u << 2,	      /* O_SYNC or RWF_SYNC */
	IO_DSYNC = 1u << 3,	      /* O_DSYNC or RWF_DSYNC */
	IO_NOWAIT = 1u << 4,	      /* RWF_NOWAIT */
	IO_HIPRI = 1u << 5,	      /* RWF_HIPRI */
	IO_POSITIONED = 1u << 6,      /* pread/pwrite family: the caller named the offset */
	IO_VECTORED = 1u << 7,	      /* readv/writev family */
	IO_OFFSET_INFERRED = 1u << 8, /* a shared file position moved during the call: offset is the only consistent guess */
	IO_COMPAT = 1u << 9,	      /* 32-bit caller */
	IO_CREATED = 1u << 10,	      /* open: this call created the file */
	IO_SHARED_MEMORY = 1u << 10,  /* of a system call of the read or write family, since 1.7: its memory (of a vector the
					 first) is shared with other processes. Of reads, and before 1.9 of writes, only
					 said where it had page faults: a new page of such memory takes longer */
	IO_TRUNCATED = 1u << 11,      /* open: O_TRUNC was asked for */
	IO_REUSED_MEMORY = 1u << 11,  /* of a read by a system call, since 1.11: to where one of the two reads of its thread
					 before it went, too */
	IO_DIRECTORY = 1u << 12,      /* file operation on a directory */
	IO_ESTIMATED = 1u << 13,      /* whole pages that the kernel mapped or dirtied: what was touched is at most this */
	IO_FIXED_BUFFER = 1u << 14,   /* io_uring: registered buffer */
	IO_LINKED = 1u << 15,	      /* io_uring: starts when the operations before it have ended (links, drain) */
	IO_PROGRAM = 1u << 16,	      /* SOURCE_MMAP: page of a file that is mapped as a program (text or data of an
					 executable or library): not the program's data */
	IO_CTIME_QUERIED = 1u << 17,  /* write: somebody has asked for the file's times (stat) since they changed last; since
					 Linux 6.13 it then changes them, and the next sync writes the inode, too */
};

/*
 * One data operation at the application's layer, written at its end. Only regular files and block devices. Zero bytes
 * and errors are kept (result <= 0); they are operations but not requests (design.md section 4).
 */
struct io_record {
	__u8 kind; /* RECORD_IO */
	__u8 op;   /* enum io_op */
	__u8 source; /* enum record_source */
	/*
	 * Of a system call, since 1.2: the share of the time since the recorded system call before, of the same thread, in
	 * which the thread had a processor, from PROCESSOR_SHARE_NONE to PROCESSOR_SHARE_ALL. The rest of the time it slept
	 * or waited for a processor.
	 */
	__u8 processor_share;
	/*
	 * enum io_flag; and in the highest byte, since 1.5, of a system call of the read or write family, how many page
	 * faults the thread had meanwhile without waiting for storage: of its own memory, that nobody had touched before.
	 * In the six bits below, since 1.6, of such a call, the share of its duration in which the thread was ready to run but
	 * waited for a processor (task->sched_info.run_delay), from IO_RUN_DELAY_NONE to IO_RUN_DELAY_ALL.
	 */
	__u32 flags;
	__u64 start_ns; /* CLOCK_MONOTONIC; its origin is the clock's, not the trace's */
	__u64 duration_ns;
	__u32 thread;  /* thread id, as in TASK */
	__u32 process; /* thread group id */
	__u32 file;    /* file_record.file */
	__u32 asked_bytes;
	__u64 offset; /* bytes from the start of the file */
	__s32 result; /* bytes done, or -errno */
	/*
	 * Of a read: bytes that came from the device and not from the page cache. Each byte of a page that the kernel
	 * fetched, wanted or ahead, counts once, for the read that takes it first; so one pass over a cold file misses
	 * everything. ~0 = not measured. With IO_OFFSET_INFERRED, in a trace that is INCOMPLETE: by how much more than `offset`
	 * the offset may be. In a trace that is PLANNED: of the request that its duration was measured of, whatever it is now;
	 * a write that has it was a read.
	 */
	__u32 missed_bytes;
	__u64 id; /* operation id, unique in the trace; block records name it as their cause; 0 = none */
};

/* A call that failed made no name: its argument, and the file of a MKDIR, is 0. */
enum fileop {
	FILEOP_OPEN = 1,	     /* argument: descriptor, ~0 (32 bits) = a registered file of io_uring without one;
					length: mode; flags: IO_CREATED, IO_TRUNCATED, ... */
	FILEOP_CLOSE = 2,	     /* argument: descriptor */
	FILEOP_FSYNC = 3,
	FILEOP_FDATASYNC = 4,
	FILEOP_SYNC_FILE_RANGE = 5,  /* argument: offset; length; flags (high half): SYNC_FILE_RANGE_* << 16, 0 = unknown */
	FILEOP_TRUNCATE = 6,	     /* argument: new size in bytes */
	FILEOP_FALLOCATE = 7,	     /* argument: offset; length; flags (high half): FALLOC_FL_* mode << 16 */
	FILEOP_RENAME = 8,	     /* file: what is renamed; argument: file id that carries the new path in its FILE record;
					length: RENAME_* flags, FILEOP_NAME_SHIFT */
	FILEOP_UNLINK = 9,	     /* length: FILEOP_NAME_SHIFT */
	FILEOP_FADVISE = 10,	     /* argument: offset; length; flags (high half): POSIX_FADV_* << 16 */
	FILEOP_MKDIR = 11,	     /* length: mode */
	FILEOP_RMDIR = 12,
	FILEOP_LINK = 13,	     /* file: the old name's; argument: file id that carries the new path in its FILE record */
	FILEOP_SYMLINK = 14,	     /* argument: file id that carries the new path; the target is not recorded */
	FILEOP_SYNCFS = 15,	     /* file: any of that file system, 0 = all of them (sync) */
	FILEOP_MSYNC = 16,	     /* file: of the first mapping; argument: offset in it; length; flags (high half): MS_* << 16 */
};

/* One operation on a file that moves no data but that a replay has to repeat. */
struct fileop_record {
	__u8 kind; /* RECORD_FILEOP */
	__u8 op;   /* enum fileop */
	__u8 source; /* enum record_source */
	__u8 processor_share; /* as in io_record */
	__u32 flags; /* enum io_flag in the low half */
	__u64 start_ns;
	__u64 duration_ns;
	__u32 thread;
	__u32 process;
	__u32 file; /* 0 = unknown (an open that failed, a path never seen) */
	__s32 result; /* as the system call returned, 0 or -errno; open: 0 or -errno */
	__u64 argument; /* see enum fileop */
	__u64 length;	/* see enum fileop */
	__u64 id;
};

/*
 * Before a call its thread slept, outside of recorded calls, and another traced thread woke it: so the call waited for what
 * that thread had done, or knew to be done because it had been woken itself just before. Stands right before the record of the call,
 * which is an IO record of SOURCE_SYSCALL or SOURCE_SPLICE, or a FILEOP record. A new thread was woken by who made it.
 */
struct wake_record {
	__u8 kind; /* RECORD_WAKE */
	__u8 reserved0;
	__u16 wakes; /* how often that was so since the thread's recorded call before; the largest number: or more */
	__u32 waker; /* thread that woke it last */
	__u64 start_ns; /* of the call */
	__u64 duration_ns; /* of the call */
	__u32 thread;
	__u32 process;
	__u64 woken_ns; /* by that one; CLOCK_MONOTONIC */
	__u64 slept_ns; /* until it was woken so, all times together; a new thread: 0 */
	__u64 cause; /* id of a call of another thread: the last to end of those that wakers had made or had heard of */
	__u64 id; /* of the call */
};

enum file_type {
	FILE_TYPE_UNKNOWN = 0,
	FILE_TYPE_REGULAR = 1,
	FILE_TYPE_BLOCK_DEVICE = 2,
	FILE_TYPE_DIRECTORY = 3,
};

enum file_flag {
	FILE_CREATED = 1u << 0, /* did not exist before the trace: a replay does not lay it out */
	FILE_NEW_NAME = 1u << 1, /* only carries the new path of a rename; no inode of its own */
};

/*
 * Identity of a file, once, at first sight. (device, inode, generation) is the identity; the path is only a label.
 * Followed by (path_bytes + TRACE_TEXT_BYTES - 1) / TRACE_TEXT_BYTES TEXT records with the same reference.
 */
struct file_record {
	__u8 kind; /* RECORD_FILE */
	__u8 type; /* enum file_type */
	__u16 path_bytes; /* without terminating zero */
	__u32 flags; /* enum file_flag */
	__u64 time_ns; /* first sight */
	__u32 file;    /* 1, 2, 3 ... in this trace; from TRACE_FIRST_NAME_ID on of paths only (rename, unlink) */
	__u32 device;  /* as stat(2) says; kernel encoding: major << 20 | minor */
	__u64 inode;
	__u32 generation;
	__u32 filesystem_magic; /* statfs f_type; 0 = unknown */
	__u64 size_bytes; /* at first sight, after an O_TRUNC; what a replay lays out */
	__u64 resident_bytes; /* in the page cache at first sight; which ranges: RESIDENT records; ~0 = not measured */
	__u64 reserved;
};

/* A thread, once, at first sight. */
struct task_record {
	__u8 kind; /* RECORD_TASK */
	__u8 reserved0[3];
	__u32 flags; /* none yet */
	__u64 time_ns;
	__u32 thread;
	__u32 process;
	__u32 parent_process;
	__u32 reserved1;
	__u64 cgroup;
	char comm[16]; /* zero-terminated */
	__u64 reserved2;
};

enum block_op {
	BLOCK_READ = 1,
	BLOCK_WRITE = 2,
	BLOCK_FLUSH = 3,
	BLOCK_DISCARD = 4,
	BLOCK_SECURE_ERASE = 5,
	BLOCK_WRITE_ZEROES = 6,
	BLOCK_ZONE = 7, /* any zone management operation */
	BLOCK_OTHER = 8, /* driver private, pass-through */
};

enum block_form {
	BLOCK_REQUEST = 1, /* a request of a request-based device */
	BLOCK_BIO = 2,	   /* a bio of a bio-based device */
};

enum block_flag {
	BLOCK_SYNC = 1u << 0,
	BLOCK_META = 1u << 1,
	BLOCK_PRIO = 1u << 2,
	BLOCK_FUA = 1u << 3,
	BLOCK_PREFLUSH = 1u << 4,
	BLOCK_READAHEAD = 1u << 5,
	BLOCK_BACKGROUND = 1u << 6,
	BLOCK_SWAP = 1u << 7,
	BLOCK_REQUEUED = 1u << 8, /* issued more than once; start_ns is the last issue */
	BLOCK_UNATTRIBUTED = 1u << 9, /* thread and process are those that issued it, which may be a kernel worker */
	BLOCK_MERGED = 1u << 10,      /* made of several bios */
	BLOCK_PARTIAL = 1u << 11,     /* completed in several parts */
	BLOCK_STACKED = 1u << 12,     /* the device passes its data on to others (dm, md, loop): totals leave it out */
	BLOCK_END_UNSEEN = 1u << 13,  /* its end was missed: duration_ns is 0 and means nothing, as status does */
};

/* One request (or bio) of a block device, written at its completion. */
struct block_record {
	__u8 kind; /* RECORD_BLOCK */
	__u8 op;   /* enum block_op */
	__u8 form; /* enum block_form */
	__u8 status; /* blk_status_t of the completion, 0 = success */
	__u32 flags; /* enum block_flag */
	__u64 start_ns; /* issue to the driver */
	__u64 duration_ns; /* issue to completion */
	__u32 thread;  /* who submitted it, as far as known */
	__u32 process;
	__u32 device; /* the whole disk; kernel encoding: major << 20 | minor */
	__u32 bytes;
	__u64 sector; /* 512-byte sectors from the start of the whole disk */
	__u64 queued_ns; /* time between being queued and being issued; ~0 = not measured */
	__u64 cause; /* io_record.id or fileop_record.id of the running call that submitted it; 0 = none */
};

/* Why a piece of a block request moved, from the most to the least certain. */
enum block_data_class {
	DATA_UNKNOWN = 0,
	DATA_DIRECT = 1,    /* direct I/O; cause: the operation */
	DATA_FILL = 2,	    /* into the page cache; cause: the read or fault that missed, or read ahead */
	DATA_WRITEBACK = 3, /* from the page cache; cause: the operation that dirtied it last, which thread and process did */
	DATA_METADATA = 4,  /* of the file system */
	DATA_JOURNAL = 5,   /* of the file system */
	DATA_SWAP = 6,
	DATA_UNTRACED = 7,  /* of a program that is not traced */
};

/*
 * A piece of a block request that is contiguous in a file. The pieces of a request follow its BLOCK record in the order
 * of their sectors; where they do not add up to its bytes, the rest is DATA_UNKNOWN.
 */
struct block_data_record {
	__u8 kind; /* RECORD_BLOCK_DATA */
	__u8 class; /* enum block_data_class */
	__u8 reserved0[2];
	__u32 file; /* 0 = none, or not known */
	__u64 start_ns; /* of the BLOCK record */
	__u64 duration_ns; /* of the BLOCK record */
	__u32 thread;  /* who caused it, not who submitted it; 0 = not known */
	__u32 process;
	__u32 device; /* of the BLOCK record */
	__u32 bytes;
	__u64 sector;
	__u64 offset; /* in the file, in bytes */
	__u64 cause; /* io_record.id; 0 = not known */
};

/* A range of a file that was in the page cache when the file was first seen. */
struct resident_record {
	__u8 kind; /* RECORD_RESIDENT */
	/*
	 * Which share of what was cached of the file lay in folios of several pages, from LARGE_FOLIOS_NONE to
	 * LARGE_FOLIOS_ALL; by some of the pages. Since 1.4.
	 */
	__u8 large_folios;
	/*
	 * How many pages those folios had, as a power of two: the median of the same pages that lay in any. 0 = not known,
	 * or none was large. Since 1.8.
	 */
	__u8 large_folio_order;
	__u8 reserved0;
	__u32 file;
	__u64 time_ns;
	__u64 offset;
	__u64 bytes;
	__u64 reserved[4];
};

/*
 * A range of a file that was a hole when the file was first seen: no data, zeros to who reads it. What is in none of these
 * had data, or may have had: not all holes are noted. Stands anywhere behind the FILE record. Since 1.10.
 */
struct hole_record {
	__u8 kind; /* RECORD_HOLE */
	__u8 reserved0[3];
	__u32 file;
	__u64 time_ns; /* first sight */
	__u64 offset;
	__u64 bytes;
	__u64 reserved[4];
};

/* Records that were lost on one CPU, by kind. Sum over GAP records = header.lost. */
struct gap_record {
	__u8 kind; /* RECORD_GAP */
	__u8 lost_kind; /* enum record_kind */
	__u16 cpu;
	__u32 flags; /* none yet */
	__u64 start_ns; /* the loss happened at or after this time ... */
	__u64 duration_ns; /* ... and within this span */
	__u64 lost_count;
	__u64 reserved[4];
};

/* A piece of text that belongs to the record before it. */
struct text_record {
	__u8 kind; /* RECORD_TEXT */
	__u8 bytes; /* used bytes of text, 1 ... TRACE_TEXT_BYTES */
	__u16 index; /* 0, 1, 2 ... within its owner */
	__u32 reference; /* file_record.file */
	__u64 reserved;
	char text[TRACE_TEXT_BYTES];
};

struct trace_header {
	char magic[8]; /* TRACE_MAGIC */
	__u16 version_major;
	__u16 version_minor;
	__u32 header_bytes; /* TRACE_HEADER_BYTES */
	__u32 record_bytes; /* TRACE_RECORD_BYTES */
	__u32 flags; /* enum trace_header_flag */
	__u64 record_count;
	__u64 start_monotonic_ns; /* CLOCK_MONOTONIC when tracing began; 0 for synthetic traces */
	__u64 start_realtime_ns;  /* CLOCK_REALTIME at the same moment */
	__u64 end_monotonic_ns;
	__u64 end_realtime_ns;
	__u64 count[TRACE_KINDS_MAX]; /* records written, by kind */
	__u64 lost[TRACE_KINDS_MAX];  /* records lost, by kind; by CPU in the GAP records */
	__u64 json_offset; /* where the JSON block is: json below, or after the last record */
	__u64 json_bytes;  /* UTF-8, no terminating zero */
	__u8 reserved[TRACE_HEADER_BYTES - TRACE_JSON_BYTES_MAX - 336];
	char json[TRACE_JSON_BYTES_MAX];
};

#define TRACE_NOT_MEASURED_U32 (~0u)
#define TRACE_NOT_MEASURED_U64 (~0ull)
#define TRACE_FIRST_NAME_ID 0x80000000u /* of files; from here on they are of paths that were only named */

_Static_assert(sizeof(struct trace_header) == TRACE_HEADER_BYTES, "header size");
_Static_assert(sizeof(struct io_record) == TRACE_RECORD_BYTES, "io_record size");
_Static_assert(sizeof(struct fileop_record) == TRACE_RECORD_BYTES, "fileop_record size");
_Static_assert(sizeof(struct file_record) == TRACE_RECORD_BYTES, "file_record size");
_Static_assert(sizeof(struct task_record) == TRACE_RECORD_BYTES, "task_record size");
_Static_assert(sizeof(struct block_record) == TRACE_RECORD_BYTES, "block_record size");
_Static_assert(sizeof(struct block_data_record) == TRACE_RECORD_BYTES, "block_data_record size");
_Static_assert(sizeof(struct resident_record) == TRACE_RECORD_BYTES, "resident_record size");
_Static_assert(sizeof(struct hole_record) == TRACE_RECORD_BYTES, "hole_record size");
_Static_assert(sizeof(struct gap_record) == TRACE_RECORD_BYTES, "gap_record size");
_Static_assert(sizeof(struct wake_record) == TRACE_RECORD_BYTES, "wake_record size");
_Static_assert(sizeof(struct text_record) == TRACE_RECORD_BYTES, "text_record size");

#endif /* FLEXTRACE_TRACE_FORMAT_H */

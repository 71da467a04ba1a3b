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
	FILTER_PATH_BYTES_MAX = 256,
	FILTER_DEVICES_MAX = 256, /* a desktop has some 60 loop devices */
	CPUS_MAX = 1 << 13, /* the most that a kernel for x86-64 can be built for */
	RING_NAME = 128, /* first byte of a struct ring_name; record kinds stay below */
};

enum name_role {
	NAME_OF_FILE = 1, /* full path of the FILE record with the same file id, sent right after it */
	NAME_DIRECTORY = 2, /* where the next NAME_ARGUMENT of this thread starts, if that is relative */
	NAME_ARGUMENT = 3, /* a path as the program gave it: unlink, first argument of rename and link */
	NAME_NEW_DIRECTORY = 4,
	NAME_NEW_ARGUMENT = 5, /* second argument of rename and link, the only one of mkdir and symlink */
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
	__u32 thread; /* whose view the path is */
	__u32 process;
	__u32 other_root; /* not that of the recorder, who can look up nothing of the name then */
	char text[NAME_BYTES_MAX + NAME_COMPONENT_MAX];
};

_Static_assert(sizeof(struct ring_name) == 32 + NAME_BYTES_MAX + NAME_COMPONENT_MAX, "ring_name size");

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
	CALL_READAHEAD,
	CALL_SYNCFS,
	CALL_DESCRIPTOR_LAST = CALL_SYNCFS,
	CALL_SENDFILE,
	CALL_SPLICE,
	CALL_COPY_FILE_RANGE,
	CALL_TWO_FILES_LAST = CALL_COPY_FILE_RANGE,
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
	CALL_TRUNCATE,
	CALL_MKDIR,
	CALL_MKDIRAT,
	CALL_RMDIR,
	CALL_LINK,
	CALL_LINKAT,
	CALL_SYMLINK,
	CALL_SYMLINKAT,
	CALL_NAME_LAST = CALL_SYMLINKAT,
	CALL_SYNC,
	CALL_MSYNC,
	CALL_MMAP, /* only makes the file known, for the page faults that follow */
	CALL_EXEC,
	CALL_EXIT, /* of the whole process: never returns */
	CALL_IO_SUBMIT, /* libaio: aio.bpf.c */
	CALL_IO_GETEVENTS,
	CALL_IO_SETUP,
	CALL_IO_DESTROY,
	CALL_IO_URING_ENTER, /* io_uring.bpf.c */
	CALL_IOCTL, /* only counts clones of files */
	CALL_LAST = CALL_IOCTL,
};

enum {
	SYSCALL_NUMBERS_MAX = 548, /* the highest ones are x32 calls */
	X32_CALLS = 0x40000000, /* where the numbers of those begin (__X32_SYSCALL_BIT) */
	/* Added to the call of a number: as a 32-bit call, or as an x32 call, it means one that is not recorded, but counted. */
	CALL_IF_COMPAT = 0x80,
	CALL_IF_X32 = 0x40,
	CALL_MASK = 0x3f,
};
_Static_assert((int)CALL_LAST <= CALL_MASK, "a call and its flags fit into a byte");

/*
 * What wakes the recorder before its next round is due. It sets that before it takes what the rings hold, so that nothing
 * comes between; whoever wakes it turns it off.
 */
enum alarm {
	ALARM_OFF = 0, /* it is up, or on its way */
	ALARM_FOR_ROOM = 1, /* a ring is filling */
	ALARM_FOR_LOOKUPS = 2, /* or there is something to look up: a file, a name, a process that came */
};

/* What was dropped on one CPU of one record kind. */
struct loss {
	__u64 count;
	__u64 last_ns;
};

/* Operations that are left out on purpose, counted per CPU. */
enum skip {
	SKIP_NOT_A_FILE = 0, /* socket, pipe, terminal, anonymous inode */
	SKIP_PSEUDO_FILE = 1, /* proc, sysfs and the like */
	SKIP_COMPAT = 2, /* 32-bit or x32 system call */
	SKIP_OWN_BLOCK = 3, /* block requests of the recorder's own trace file */
	SKIP_FILTERED = 4, /* operations that a filter of the user's leaves out; those on names drain.c counts */
	SKIP_CLONE = 5, /* a file, or a part of one, that was made to share the data of another */
	SKIP_KINDS,
};

/* Data operations of one direction and source that were seen, whether or not their records got through. Per CPU. */
struct total {
	__u64 count; /* that moved at least one byte */
	__u64 bytes;
	__u64 failed; /* moved nothing: errors and ends of files */
};

enum { TOTAL_SOURCES = 8, TOTALS_MAX = 2 * TOTAL_SOURCES };

static inline __u32 total_key(__u8 op, __u8 source)
{
	return ((op - 1u) * TOTAL_SOURCES + source) % TOTALS_MAX;
}

/* As in the kernel's struct task_io_accounting (/proc/PID/io). Per CPU. */
struct account {
	__u64 rchar; /* read by the read family, sendfile and copy_file_range, from whatever */
	__u64 wchar;
	__u64 syscr;
	__u64 syscw;
	__u64 read_bytes; /* submitted to a block device by the task */
	__u64 write_bytes; /* dirtied, or written directly */
};

/* What the processors did while it was recorded. Per CPU. */
struct processor_use {
	__u64 since_ns; /* when the task that runs there got it; 0 = not seen */
	__u64 others_ns; /* had by threads of programs that are not traced, but for the recorder's own */
	__u64 others_bursts; /* until they slept */
	__u64 thinking_ns; /* had by traced threads between recorded calls between which they slept */
	__u64 thinking_bursts; /* until they slept, or made the next call */
	__u64 recording_ns; /* that the programs took before the start and behind the end of some recorded calls */
	__u64 recording_calls; /* of so many */
};

/* The closure check compares SEEN with KERNEL - EXEC. */
enum account_side {
	ACCOUNT_SEEN = 0, /* what the traced calls, bios and dirtied pages add up to */
	ACCOUNT_KERNEL = 1, /* what the kernel charged the traced threads while they were traced */
	ACCOUNT_EXEC = 2, /* of that: rchar and syscr of the kernel itself in execve */
	ACCOUNTS,
};

/* What block devices moved, by device: the tracer's side of the comparison with /sys/block/DEVICE/stat. */
struct device_total {
	__u64 reads, read_bytes;
	__u64 writes,
		write_bytes; /* as the kernel counts: also write zeroes, zone operations, writes that only flush */
	__u64 others; /* flush, discard, pass-through */
	__u64 own_bytes; /* of the recorder itself: in the bytes above, but not in the trace */
};

#endif /* FLEXTRACE_RING_EVENT_H */

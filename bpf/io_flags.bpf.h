/* SPDX-License-Identifier: Apache-2.0 OR BSD-2-Clause */
/*
 * Flags of open(2), preadv2(2) and vectors of buffers -> io_flag and bytes of the trace.
 */
#ifndef FLEXTRACE_IO_FLAGS_BPF_H
#define FLEXTRACE_IO_FLAGS_BPF_H

#include "maps.bpf.h"

/* include/uapi/linux/fs.h */
enum {
	RWF_HIPRI = 0x1,
	RWF_DSYNC = 0x2,
	RWF_SYNC = 0x4,
	RWF_NOWAIT = 0x8,
	RWF_APPEND = 0x10,
	RWF_NOAPPEND = 0x20,
	VECTORS_MAX = 1024, /* UIO_MAXIOV */
};
#define CTIME_QUERIED (1u << 31) /* I_CTIME_QUERIED of inode.i_ctime_nsec */

/* Data operations that ask for less are left out; filled by the recorder before load. */
const volatile __u64 filter_size_bytes_min __weak = 0;

struct io_vector {
	__u64 base;
	__u64 bytes;
};

static __always_inline __u32 descriptor_io_flags(__u32 descriptor_flags)
{
	__u32 flags = 0;
	if (descriptor_flags & OPEN_DIRECT)
		flags |= IO_DIRECT;
	if (descriptor_flags & OPEN_APPEND)
		flags |= IO_APPEND;
	/* O_SYNC contains the bit of O_DSYNC. */
	if ((descriptor_flags & OPEN_SYNC) == OPEN_SYNC)
		flags |= IO_SYNC;
	else if (descriptor_flags & OPEN_DSYNC)
		flags |= IO_DSYNC;
	return flags;
}

static __always_inline __u32 call_io_flags(__u32 rwf)
{
	__u32 flags = 0;
	if (rwf & RWF_HIPRI)
		flags |= IO_HIPRI;
	if (rwf & RWF_DSYNC)
		flags |= IO_DSYNC;
	if (rwf & RWF_SYNC)
		flags |= IO_SYNC;
	if (rwf & RWF_NOWAIT)
		flags |= IO_NOWAIT;
	if (rwf & RWF_APPEND)
		flags |= IO_APPEND;
	return flags;
}

/*
 * IO_CTIME_QUERIED or 0; asked before the write. Since Linux 6.13 stat marks a time that it has told, and the next change gets
 * one of its own, not that of the last clock tick, which the inode mostly has (Documentation/filesystems/multigrain-ts.rst).
 */
static __always_inline __u32 ctime_io_flag(__u32 ctime_nsec)
{
	return ctime_nsec & CTIME_QUERIED ? IO_CTIME_QUERIED : 0;
}

/* i_ctime_nsec, 0 where there is none. */
static __always_inline __u32 ctime_nsec_of(__u64 inode_pointer)
{
	const struct inode *inode = (const void *)inode_pointer;
	return bpf_core_field_exists(inode->i_ctime_nsec) ? BPF_CORE_READ(inode, i_ctime_nsec) : 0;
}

/* As the field of the record holds it. */
static __always_inline __u32 saturated_u32(__u64 value)
{
	return value > 0xffffffff ? 0xffffffff : value;
}

/* By how much more than it is said an offset may be, as missed_bytes holds it beside IO_OFFSET_INFERRED; 0 = none. */
static __always_inline __u32 offset_width(__s64 width)
{
	return width <= 0 ? 0 : width >= TRACE_NOT_MEASURED_U32 ? TRACE_NOT_MEASURED_U32 - 1 : width;
}

struct vector_sum {
	__u64 vectors; /* their address in the memory of the task that runs */
	__u64 bytes;
};

static long add_vector(__u32 i, struct vector_sum *sum)
{
	struct io_vector vector = {};
	if (bpf_probe_read_user(&vector, sizeof(vector), (const struct io_vector *)sum->vectors + i))
		return 1;
	sum->bytes += vector.bytes;
	return 0;
}

/* Bytes of a vector of buffers in the memory of the task that runs; the kernel has just read it, so it is resident. */
__weak __u64 vector_bytes(__u64 vectors, __u64 count)
{
	struct vector_sum sum = {.vectors = vectors};
	bpf_loop(count < VECTORS_MAX ? count : VECTORS_MAX, add_vector, &sum, 0);
	return sum.bytes;
}

/* Address of the first buffer of a vector, 0 if it cannot be read. */
static __always_inline __u64 first_of_vector(__u64 vectors)
{
	struct io_vector vector = {};
	bpf_probe_read_user(&vector, sizeof(vector), (const struct io_vector *)vectors);
	return vector.base;
}

#endif /* FLEXTRACE_IO_FLAGS_BPF_H */

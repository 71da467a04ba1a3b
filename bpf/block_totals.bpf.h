/* SPDX-License-Identifier: Apache-2.0 OR BSD-2-Clause */
/*
 * Everything that block devices complete, whoever asked for it -> sums to compare with the kernel's own.
 */
#ifndef FLEXTRACE_BLOCK_TOTALS_BPF_H
#define FLEXTRACE_BLOCK_TOTALS_BPF_H

#include "block_flags.bpf.h"

enum { DEVICES_MAX = 4096 };

/*
 * By whole disk: major << 20 | first minor. Per CPU, as completions of one disk run on many, and so in memory for each CPU that is
 * possible: the recorder makes it as large as there are disks, and some that may come.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, DEVICES_MAX);
	__type(key, __u32);
	__type(value, struct device_total);
} device_totals __weak SEC(".maps");

/* 0 for a queue without a disk. */
static __always_inline __u32 device_number(const struct gendisk *disk)
{
	return (__u32)disk->major << 20 | (__u32)disk->first_minor;
}

static __always_inline struct device_total *total_of_device(__u32 device)
{
	struct device_total *total = bpf_map_lookup_elem(&device_totals, &device);
	if (total)
		return total;
	struct device_total nothing = {};
	bpf_map_update_elem(&device_totals, &device, &nothing, BPF_NOEXIST);
	return bpf_map_lookup_elem(&device_totals, &device);
}

/* In the kernel's statistics, where discards, flushes and pass-through stand apart: operations with odd numbers write. */
static __always_inline bool is_counted_as_write(__u32 op)
{
	return op & 1 && op != REQUEST_OP_DISCARD && op < REQUEST_OP_DRIVER_IN;
}

/*
 * A completed part of a request; `ends` if it is the last one, `own` if it was the recorder's, which the trace has not. Atomic,
 * as the interrupt of another disk may come between the load of a sum and its store.
 */
static __always_inline void count_done(__u32 device, __u32 command_flags, __u32 bytes, bool ends, bool own)
{
	if (own)
		count_skip(SKIP_OWN_BLOCK);
	struct device_total *total = total_of_device(device);
	if (!total)
		return;
	__u32 op = command_flags & REQUEST_OP_MASK;
	if (op == REQUEST_OP_READ) {
		__sync_fetch_and_add(&total->reads, ends);
		__sync_fetch_and_add(&total->read_bytes, bytes);
	} else if (is_counted_as_write(op)) {
		__sync_fetch_and_add(&total->writes, ends);
		__sync_fetch_and_add(&total->write_bytes, bytes);
	} else {
		__sync_fetch_and_add(&total->others, ends);
		return;
	}
	if (own)
		__sync_fetch_and_add(&total->own_bytes, bytes);
}

#endif /* FLEXTRACE_BLOCK_TOTALS_BPF_H */

/* SPDX-License-Identifier: Apache-2.0 OR BSD-2-Clause */
/*
 * State that the BPF objects share, and the way from a program into the ring of its CPU. Maps and globals are weak, so
 * that every object carries the definition and the linker keeps one.
 */
#ifndef FLEXTRACE_MAPS_BPF_H
#define FLEXTRACE_MAPS_BPF_H

#include "kernel_types.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "ring_event.h"

enum {
	CPUS_MAX = 1024,
	FILES_MAX = 1 << 20,
	REQUESTS_IN_FLIGHT_MAX = 1 << 16,
};

/* One ring for each CPU, so that producers never share a lock; made and put in by the recorder. */
struct ring_of_cpu {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, CPUS_MAX);
	__type(key, __u32);
	__array(values, struct ring_of_cpu);
} rings __weak SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, TRACE_KINDS_MAX);
	__type(key, __u32);
	__type(value, struct loss);
} losses __weak SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SKIP_KINDS);
	__type(key, __u32);
	__type(value, __u64);
} skips __weak SEC(".maps");

/* A traced thread has one of these; a thread without is not traced. Made at fork, so that the whole tree has it. */
struct task_state {
	__u32 call; /* enum call of the system call that is running, CALL_NONE outside */
	__u32 announced; /* TASK record sent */
	__u64 start_ns;
	__u64 id; /* operation id of the running call */
	__u64 file_pointer; /* struct file of the running call */
	__u64 inode_pointer;
	__u64 position_lock; /* address of the struct file's f_pos_lock */
	__s64 position; /* f_pos (appending: i_size) at entry, or under the lock if that was fought for */
	__u32 position_exact; /* position was read inside the call, with the lock held */
	__u32 positioned; /* the caller names the offset */
	__u32 appends; /* the kernel appends, whatever the caller names */
	__u32 reserved;
	__u32 file; /* file id */
	__u32 descriptor_flags; /* f_flags */
};
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct task_state);
} tasks __weak SEC(".maps");

static __always_inline void count_skip(__u32 skip)
{
	__u64 *count = bpf_map_lookup_elem(&skips, &skip);
	if (count)
		__sync_fetch_and_add(count, 1);
}

static __always_inline void count_loss(__u32 kind, __u64 now_ns)
{
	struct loss *loss = bpf_map_lookup_elem(&losses, &kind);
	if (!loss)
		return;
	if (!loss->count)
		loss->first_ns = now_ns;
	loss->last_ns = now_ns;
	__sync_fetch_and_add(&loss->count, 1);
}

/* Space for one event in this CPU's ring, or NULL after counting the loss. The size must be a constant. */
#define reserve_event(event_bytes, record_kind, now_ns)                                \
	({                                                                             \
		__u32 cpu = bpf_get_smp_processor_id();                                \
		void *ring = bpf_map_lookup_elem(&rings, &cpu);                        \
		void *event = ring ? bpf_ringbuf_reserve(ring, event_bytes, 0) : NULL; \
		if (!event)                                                            \
			count_loss(record_kind, now_ns);                               \
		event;                                                                 \
	})

/* The recorder polls: waking it for every event would cost more than the event. */
static __always_inline void submit_event(void *event)
{
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
}

#endif /* FLEXTRACE_MAPS_BPF_H */

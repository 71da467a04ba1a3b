/* SPDX-License-Identifier: Apache-2.0 OR BSD-2-Clause */
/*
 * The page fault on a mapped file that runs in a thread: what it is for, and the operation that it is in the trace.
 */
#ifndef FLEXTRACE_PAGE_FAULT_BPF_H
#define FLEXTRACE_PAGE_FAULT_BPF_H

#include "maps.bpf.h"

struct page_fault {
	__u64 number; /* faults that the thread had had when this one began */
	__u64 inode_pointer;
	__u64 id; /* operation */
	__u64 start_ns;
	__u64 first, end; /* pages that stand in records of this fault already */
	__u32 id_used; /* by one of these records */
	__u32 waits; /* for a page that is not there yet */
	/* Large folios that a fault before this one seemed to map as a whole. */
	__u64 wide_inode_pointer;
	__u64 wide_first, wide_end;
	__u64 wide_asked; /* first page of what that fault named */
};
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct page_fault);
} page_faults __weak SEC(".maps");

/*
 * The kernel counts a fault when it is through. A fault that has to wait for the device is begun again afterwards, so
 * that tracepoints fire twice, but it is counted once.
 */
static __always_inline __u64 fault_number(struct task_struct *task)
{
	return task->min_flt + task->maj_flt;
}

/* Id of the operation of the fault that runs in this thread on this inode, 0 if there is none. */
static __always_inline __u64 fault_cause(__u64 inode_pointer)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct page_fault *fault = bpf_task_storage_get(&page_faults, task, NULL, 0);
	if (!fault || fault->inode_pointer != inode_pointer || fault->number != fault_number(task))
		return 0;
	return fault->id;
}

#endif /* FLEXTRACE_PAGE_FAULT_BPF_H */

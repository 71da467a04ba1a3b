// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Which threads are traced: the target with its threads and descendants, by task storage that children inherit.
 */
#include "maps.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

enum { ANCESTORS_MAX = 64 };

/* Process whose tree is taken in when the iterator runs. */
__u32 target_process = 0;

SEC("tp_btf/task_newtask")
int BPF_PROG(task_newtask, struct task_struct *task, __u64 clone_flags)
{
	if (!bpf_task_storage_get(&tasks, bpf_get_current_task_btf(), NULL, 0))
		return 0;
	struct task_state fresh = {};
	if (!bpf_task_storage_get(&tasks, task, &fresh, BPF_LOCAL_STORAGE_GET_F_CREATE))
		count_loss(RECORD_TASK, bpf_ktime_get_ns());
	return 0;
}

/* Walks all tasks once, after task_newtask is attached, so that no child of the target slips through. */
SEC("iter/task")
int adopt_target(struct bpf_iter__task *context)
{
	struct task_struct *task = context->task;
	if (!task)
		return 0;
	struct task_struct *ancestor = task;
	for (int i = 0; i < ANCESTORS_MAX; i++) {
		if ((__u32)BPF_CORE_READ(ancestor, tgid) == target_process) {
			struct task_state fresh = {};
			if (!bpf_task_storage_get(&tasks, task, &fresh, BPF_LOCAL_STORAGE_GET_F_CREATE))
				count_loss(RECORD_TASK, bpf_ktime_get_ns());
			return 0;
		}
		struct task_struct *parent = BPF_CORE_READ(ancestor, real_parent);
		if (parent == ancestor || !parent)
			return 0;
		ancestor = parent;
	}
	return 0;
}

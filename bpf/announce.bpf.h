/* SPDX-License-Identifier: Apache-2.0 OR BSD-2-Clause */
/*
 * A traced thread that runs, at the first operation that is seen of it -> its TASK record.
 */
#ifndef FLEXTRACE_ANNOUNCE_BPF_H
#define FLEXTRACE_ANNOUNCE_BPF_H

#include "maps.bpf.h"

static __always_inline void announce_task(struct task_struct *task, struct task_state *state)
{
	__u64 now_ns = bpf_ktime_get_ns();
	state->announced = ANNOUNCE_FAILED;
	struct task_record *record = try_reserve_event(sizeof(struct task_record));
	if (!record)
		return;
	__builtin_memset(record, 0, sizeof(*record));
	record->kind = RECORD_TASK;
	record->time_ns = now_ns;
	record->thread = task->pid;
	record->process = task->tgid;
	record->parent_process = BPF_CORE_READ(task, real_parent, tgid);
	record->cgroup = bpf_get_current_cgroup_id();
	bpf_get_current_comm(record->comm, sizeof(record->comm));
	submit_event(record);
	state->announced = ANNOUNCED;
}

#endif /* FLEXTRACE_ANNOUNCE_BPF_H */

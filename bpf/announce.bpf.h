/* SPDX-License-Identifier: Apache-2.0 OR BSD-2-Clause */
/*
 * A traced thread that runs, at the first operation that is seen of it -> its TASK record. Of a thread whose first one is a page
 * fault a second one if it names itself, or loses its parent, before its first call, as threads and daemons do.
 */
#ifndef FLEXTRACE_ANNOUNCE_BPF_H
#define FLEXTRACE_ANNOUNCE_BPF_H

#include "maps.bpf.h"

static __always_inline __u32 parent_of(struct task_struct *task)
{
	return BPF_CORE_READ(task, real_parent, tgid);
}

static __always_inline void announce_task(struct task_struct *task, struct task_state *state)
{
	__u64 now_ns = bpf_ktime_get_ns();
	struct task_record *record = try_reserve_event(sizeof(struct task_record));
	if (!record) {
		state->announced = ANNOUNCE_FAILED;
		return;
	}
	__builtin_memset(record, 0, sizeof(*record));
	record->kind = RECORD_TASK;
	record->time_ns = now_ns;
	record->thread = task->pid;
	record->process = task->tgid;
	record->parent_process = parent_of(task);
	record->cgroup = bpf_get_current_cgroup_id();
	bpf_get_current_comm(record->comm, sizeof(record->comm));
	submit_event(record);
	state->announced = ANNOUNCED;
}

static __always_inline void announce_by_fault(struct task_struct *task, struct task_state *state)
{
	bpf_get_current_comm(state->announced_name, sizeof(state->announced_name));
	state->announced_parent = parent_of(task);
	announce_task(task, state);
	if (state->announced == ANNOUNCED)
		state->announced = ANNOUNCED_BY_FAULT;
}

/* Not inline, so that what it has on the stack is not beside other calls. */
static __attribute__((noinline, unused)) int announce_by_call(struct task_struct *task, struct task_state *state)
{
	__u64 name[2] = {};
	bpf_get_current_comm(name, sizeof(name));
	if (state->announced == ANNOUNCED_BY_FAULT && name[0] == state->announced_name[0] &&
	    name[1] == state->announced_name[1] && parent_of(task) == state->announced_parent)
		state->announced = ANNOUNCED;
	else
		announce_task(task, state);
	return 0;
}

#endif /* FLEXTRACE_ANNOUNCE_BPF_H */

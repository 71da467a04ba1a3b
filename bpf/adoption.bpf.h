/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Begins to trace a task that exists already.
 */
#ifndef FLEXTRACE_ADOPTION_BPF_H
#define FLEXTRACE_ADOPTION_BPF_H

#include "maps.bpf.h"

static __always_inline void note_account(struct account *account, struct task_struct *task)
{
	account->rchar = BPF_CORE_READ(task, ioac.rchar);
	account->wchar = BPF_CORE_READ(task, ioac.wchar);
	account->syscr = BPF_CORE_READ(task, ioac.syscr);
	account->syscw = BPF_CORE_READ(task, ioac.syscw);
	account->read_bytes = BPF_CORE_READ(task, ioac.read_bytes);
	account->write_bytes = BPF_CORE_READ(task, ioac.write_bytes);
}

/*
 * What tasks have open and mapped is announced (tasks.bpf.c) after each round in which some were taken in: of those tasks. The
 * recorder counts the rounds that have ended.
 */
__u32 adoption_rounds __weak = 0;
__u64 adoptions __weak = 0;

static __always_inline void count_adoption(void)
{
	__sync_fetch_and_add(&adoptions, 1);
	void *ring = alarm == ALARM_FOR_LOOKUPS ? ring_of_this_cpu() : NULL;
	if (ring)
		sound_alarm(ring);
}

/*
 * A task that is traced already stays as it is. The kernel's threads, which are in the first of all groups, make no calls: what
 * they read and write is for others.
 */
static __always_inline void adopt_task(struct task_struct *task)
{
	if (task->flags & TASK_KERNEL_THREAD || (__u32)BPF_CORE_READ(task, tgid) == recorder_process ||
	    bpf_task_storage_get(&tasks, task, NULL, 0))
		return;
	struct task_state *state = make_task_state(task);
	if (!state) {
		count_loss(RECORD_TASK, bpf_ktime_get_ns());
		return;
	}
	note_account(&state->before, task);
	state->adopted_in = adoption_rounds + 1;
	count_adoption();
}

/* Whether what it has open and mapped is to be announced now. */
static __always_inline bool was_just_adopted(struct task_struct *task)
{
	struct task_state *state = bpf_task_storage_get(&tasks, task, NULL, 0);
	return state && state->adopted_in == adoption_rounds;
}

#endif /* FLEXTRACE_ADOPTION_BPF_H */

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

/* A task that is traced already stays as it is. */
static __always_inline void adopt_task(struct task_struct *task)
{
	if ((__u32)BPF_CORE_READ(task, tgid) == recorder_process || bpf_task_storage_get(&tasks, task, NULL, 0))
		return;
	mark_traced(task);
	struct task_state *state = bpf_task_storage_get(&tasks, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (state)
		note_account(&state->before, task);
	else
		count_loss(RECORD_TASK, bpf_ktime_get_ns());
}

#endif /* FLEXTRACE_ADOPTION_BPF_H */

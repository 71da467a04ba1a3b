/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the kernel itself reads of a program in execve, and charges the task for -> ACCOUNT_EXEC.
 */
#ifndef FLEXTRACE_EXEC_BPF_H
#define FLEXTRACE_EXEC_BPF_H

#include "maps.bpf.h"

static __always_inline void exec_begins(const struct task_struct *task, struct task_state *state)
{
	state->exec_rchar = task->ioac.rchar;
	state->exec_syscr = task->ioac.syscr;
}

static __always_inline void exec_ends(const struct task_struct *task, const struct task_state *state)
{
	struct account *account = account_of(ACCOUNT_EXEC);
	if (!account)
		return;
	account->rchar += task->ioac.rchar - state->exec_rchar;
	account->syscr += task->ioac.syscr - state->exec_syscr;
}

#endif /* FLEXTRACE_EXEC_BPF_H */

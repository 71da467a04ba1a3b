// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Wake-ups of traced threads by traced threads -> what the woken one has heard of (wake_ups.bpf.h).
 */
#include "wake_ups.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

enum { STACK_BYTES = 16 << 10 }; /* of a thread in the kernel, x86-64 */

/*
 * Timers and devices interrupt whoever runs, and the wake-ups of an interrupt are not that thread's. What comes upon the
 * kernel runs on a stack of its own, where the arguments of this program are then; what comes upon the program uses the
 * thread's, and leaves no number of a system call (nor do faults, which wake up nobody). The preemption count would tell,
 * but not every kernel lets programs find it (CONFIG_KALLSYMS_ALL). Soft interrupts look the same, also those in which a
 * thread delivers what it sends over the loopback device.
 */
static __always_inline bool is_doing_of(struct task_struct *task, const void *arguments)
{
	__u64 address = 0, stack = (__u64)BPF_CORE_READ(task, stack);
	bpf_probe_read_kernel(&address, sizeof(address), &arguments);
	const struct pt_regs *entry = (const struct pt_regs *)bpf_task_pt_regs(task);
	return address - stack < STACK_BYTES && (__s64)BPF_CORE_READ(entry, orig_ax) >= 0;
}

/* Every wake-up on the machine comes by here. */
SEC("tp_btf/sched_waking")
int BPF_PROG(sched_waking, struct task_struct *woken)
{
	struct task_struct *waker = bpf_get_current_task_btf();
	if (!may_be_traced(woken) || !may_be_traced(waker) || woken == waker)
		return 0;
	struct task_state *state = bpf_task_storage_get(&tasks, woken, NULL, 0);
	struct task_state *waker_state = bpf_task_storage_get(&tasks, waker, NULL, 0);
	if (!state || !waker_state || !is_doing_of(waker, ctx))
		return 0;
	struct news news = news_for_woken(waker, waker_state);
	/* What it waits for within a recorded call is part of that. */
	if (state->id || state->target_id)
		return 0;
	__u64 now_ns = bpf_ktime_get_ns();
	if (hear(state, news, waker, now_ns))
		state->slept_ns += asleep_ns(state, now_ns);
	return 0;
}

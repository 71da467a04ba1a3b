// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Switches between threads -> how long each traced thread has had a processor (processor_time.bpf.h), and how long others had.
 */
#include "processor_time.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* What the kernel's own threads do is mostly the doing of those who are traced, and a replay has it again. */
static __always_inline bool is_other(const struct task_struct *task)
{
	return task->pid && task->tgid != recorder_process && !(task->flags & TASK_KERNEL_THREAD);
}

/*
 * Whether the thread that loses its processor does so to sleep. Who is preempted within the kernel may have been about to; who
 * is preempted on the way back to its program is not told as such, but is running.
 */
static __always_inline bool goes_to_sleep(const struct task_struct *task, bool preempt)
{
	return !preempt && task->__state;
}

/* Every switch on the machine comes by here. */
SEC("tp_btf/sched_switch")
int BPF_PROG(sched_switch, bool preempt, struct task_struct *previous, struct task_struct *next)
{
	bool previous_traced = may_be_traced(previous), next_traced = may_be_traced(next);
	__u64 now_ns = bpf_ktime_get_ns();
	struct processor_use *use = processor_use();
	if (use) {
		if (use->since_ns && !previous_traced && is_other(previous)) {
			use->others_ns += now_ns - use->since_ns;
			use->others_bursts += goes_to_sleep(previous, preempt);
		}
		use->since_ns = now_ns;
	}
	if (!previous_traced && !next_traced)
		return 0;
	struct task_state *state = previous_traced ? bpf_task_storage_get(&tasks, previous, NULL, 0) : NULL;
	if (state && state->got_processor_ns) {
		state->processor_ns += now_ns - state->got_processor_ns;
		state->got_processor_ns = 0;
		state->lost_processor_ns = now_ns;
		state->sleeps += goes_to_sleep(previous, preempt);
	}
	state = next_traced ? bpf_task_storage_get(&tasks, next, NULL, 0) : NULL;
	if (!state)
		return 0;
	/* It was not seen to lose the one that it had. */
	if (state->got_processor_ns)
		state->call_before_end_ns = 0;
	state->got_processor_ns = now_ns;
	return 0;
}

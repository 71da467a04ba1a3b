// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Switches between threads -> how long each traced thread has had a processor (processor_time.bpf.h).
 */
#include "processor_time.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Every switch on the machine comes by here. */
SEC("tp_btf/sched_switch")
int BPF_PROG(sched_switch, bool preempt, struct task_struct *previous, struct task_struct *next)
{
	bool previous_traced = may_be_traced(previous), next_traced = may_be_traced(next);
	if (!previous_traced && !next_traced)
		return 0;
	__u64 now_ns = bpf_ktime_get_ns();
	struct task_state *state = previous_traced ? bpf_task_storage_get(&tasks, previous, NULL, 0) : NULL;
	if (state && state->got_processor_ns) {
		state->processor_ns += now_ns - state->got_processor_ns;
		state->got_processor_ns = 0;
		state->lost_processor_ns = now_ns;
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

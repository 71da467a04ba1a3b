/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Times at which a thread gets and loses its processor -> the share of the time between two recorded calls that it had one,
 * and for how long at a time.
 */
#ifndef FLEXTRACE_PROCESSOR_TIME_BPF_H
#define FLEXTRACE_PROCESSOR_TIME_BPF_H

#include "maps.bpf.h"

enum {
	RECORDING_SAMPLE_BITS = 4, /* one in 16 operations of a thread */
	RECORDING_NS_MAX = 50000, /* what takes longer was interrupted */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct processor_use);
} processor_uses __weak SEC(".maps");

/* Of the processor that this runs on. */
static __always_inline struct processor_use *processor_use(void)
{
	__u32 only = 0;
	return bpf_map_lookup_elem(&processor_uses, &only);
}

/* Of the thread that runs. */
static __always_inline __u64 processor_ns_until(const struct task_state *state, __u64 now_ns)
{
	return state->processor_ns + (now_ns - state->got_processor_ns);
}

/* At the start of a call: as io_record.processor_share. */
static __always_inline __u8 processor_share_until(const struct task_state *state, __u64 now_ns)
{
	/* No call before; or how it got or lost its processor was not seen. */
	if (!state->call_before_end_ns || !state->got_processor_ns || now_ns <= state->call_before_end_ns)
		return 0;
	/* Mostly it has kept it, and a division takes some ns. */
	if (state->got_processor_ns <= state->call_before_end_ns)
		return PROCESSOR_SHARE_ALL;
	__u64 span_ns = now_ns - state->call_before_end_ns;
	__u64 had_ns = processor_ns_until(state, now_ns) - state->call_before_processor_ns;
	if (had_ns > span_ns)
		had_ns = span_ns;
	struct processor_use *use = state->sleeps ? processor_use() : NULL;
	if (use) {
		use->thinking_ns += had_ns;
		use->thinking_bursts += state->sleeps + 1;
	}
	return PROCESSOR_SHARE_NONE + had_ns * (PROCESSOR_SHARE_ALL - PROCESSOR_SHARE_NONE) / span_ns;
}

static __always_inline __u64 run_delay_ns(const struct task_struct *task)
{
	return bpf_core_field_exists(task->sched_info.run_delay) ? task->sched_info.run_delay : 0;
}

/* At the start of a call that is recorded. */
static __always_inline void note_call_start(const struct task_struct *task, struct task_state *state, __u64 now_ns)
{
	state->start_ns = now_ns;
	state->processor_share = processor_share_until(state, now_ns);
	state->run_delay_before_ns = run_delay_ns(task);
}

/* At its end: for which share of it the thread waited for a processor, as io_record.flags have it. */
static __always_inline __u32 run_delay_io_flags(const struct task_struct *task, const struct task_state *state,
						__u64 now_ns)
{
	if (!bpf_core_field_exists(task->sched_info.run_delay))
		return 0;
	__u64 delay_ns = run_delay_ns(task) - state->run_delay_before_ns, duration_ns = now_ns - state->start_ns;
	/* Mostly it has waited for none, and a division takes some ns. */
	if (!delay_ns || !duration_ns)
		return IO_RUN_DELAY_NONE << IO_RUN_DELAY_SHIFT;
	if (delay_ns > duration_ns)
		delay_ns = duration_ns;
	__u64 share = (delay_ns * (IO_RUN_DELAY_ALL - IO_RUN_DELAY_NONE) + duration_ns / 2) / duration_ns;

	return (__u32)(IO_RUN_DELAY_NONE + share) << IO_RUN_DELAY_SHIFT;
}

/* At the end of a call that is recorded. */
static __always_inline void note_call_end(struct task_state *state, __u64 id, __u64 now_ns)
{
	/* It has one, whether or not it was seen to get it. */
	if (!state->got_processor_ns)
		state->got_processor_ns = now_ns;
	state->call_before_end_ns = now_ns;
	state->call_before_processor_ns = processor_ns_until(state, now_ns);
	state->sleeps = 0;
	state->call_before_id = id;
}

/*
 * Whether what the programs take for an operation is measured: not always, since to measure it takes some ns as well. Spread
 * by the golden ratio, since programs repeat the same few calls: every 16th would always be the same of them.
 */
static __always_inline bool is_recording_sample(__u64 id)
{
	return (__u32)id * 0x9e3779b9u >> (32 - RECORDING_SAMPLE_BITS) == 0;
}

/* Between the entry of a call and its start: in the think time before it. */
static __always_inline void note_recording_before(const struct task_state *state)
{
	__u64 taken_ns = state->entered_ns && state->id ? state->start_ns - state->entered_ns : 0;
	struct processor_use *use = taken_ns && taken_ns < RECORDING_NS_MAX ? processor_use() : NULL;
	if (use)
		use->recording_ns += taken_ns;
}

/* Between its end and its exit: in the think time behind it. */
static __always_inline void note_recording_behind(const struct task_state *state)
{
	if (!state->id || !is_recording_sample(state->id) || state->call_before_id != state->id)
		return;
	__u64 taken_ns = bpf_ktime_get_ns() - state->call_before_end_ns;
	struct processor_use *use = taken_ns < RECORDING_NS_MAX ? processor_use() : NULL;
	if (!use)
		return;
	use->recording_ns += taken_ns;
	use->recording_calls++;
}

#endif /* FLEXTRACE_PROCESSOR_TIME_BPF_H */

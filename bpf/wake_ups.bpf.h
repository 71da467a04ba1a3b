/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a thread knows to have happened because others woke it -> WAKE records.
 *
 * A thread knows its own calls, and what those knew who have woken it. Of all that, only the call that ended last is kept.
 * So it goes through threads that make no recorded call themselves, such as a messenger between two; but, until the thread
 * ends, only to the first that is woken then: who serves several, such as a client of two servers, has heard the one's
 * news when it turns to the other, which has not waited for them.
 */
#ifndef FLEXTRACE_WAKE_UPS_BPF_H
#define FLEXTRACE_WAKE_UPS_BPF_H

#include "maps.bpf.h"

enum { WAKES_MAX = 0xffff };

static __always_inline bool is_own_call(const struct task_state *state, __u64 id)
{
	return state->id_base && id >> OPERATION_COUNT_BITS == state->id_base >> OPERATION_COUNT_BITS;
}

/* What a thread knows. */
struct news {
	__u64 id; /* 0 = nothing */
	__u64 end_ns;
};

/* For who comes after all that a thread does: whom it makes, and who waits for its end. */
static __always_inline struct news all_news(const struct task_state *state)
{
	if (state->call_before_end_ns >= state->heard_end_ns)
		return (struct news){state->call_before_id, state->call_before_end_ns};
	return (struct news){state->heard_id, state->heard_end_ns};
}

/* For whom it wakes; what it has only heard of just once. */
static __always_inline struct news news_for_woken(const struct task_struct *task, struct task_state *state)
{
	bool ends = task->flags & TASK_EXITING;
	bool may_tell = ends || state->to_be_handed_on || state->call_before_end_ns >= state->heard_end_ns;
	state->to_be_handed_on = 0;
	return may_tell ? all_news(state) : (struct news){};
}

/* A traced thread learns what another one knows; whether it is new to it. */
static __always_inline bool hear(struct task_state *state, struct news news, const struct task_struct *waker,
				 __u64 now_ns)
{
	if (!news.id || news.end_ns <= state->heard_end_ns || is_own_call(state, news.id))
		return false;
	state->heard_id = news.id;
	state->heard_end_ns = news.end_ns;
	state->to_be_handed_on = 1;
	state->woken_ns = now_ns;
	state->waker = waker->pid;
	state->wakes++;
	return true;
}

/* How long a thread had been asleep that is being woken, since its last recorded call. */
static __always_inline __u64 asleep_ns(const struct task_state *state, __u64 now_ns)
{
	__u64 from_ns = state->lost_processor_ns;
	/* It is about to sleep and still has a processor; or how it lost that was not seen. */
	if (state->got_processor_ns || !from_ns)
		return 0;
	if (from_ns < state->call_before_end_ns)
		from_ns = state->call_before_end_ns;
	return now_ns > from_ns ? now_ns - from_ns : 0;
}

/* Right before the record of a call that has ended. */
static __always_inline void send_wake(struct task_struct *task, struct task_state *state, __u64 id, __u64 now_ns)
{
	if (!state->wakes)
		return;
	struct wake_record *record = reserve_event(sizeof(struct wake_record), RECORD_WAKE, now_ns);
	if (record) {
		record->kind = RECORD_WAKE;
		record->reserved0 = 0;
		record->wakes = state->wakes < WAKES_MAX ? state->wakes : WAKES_MAX;
		record->waker = state->waker;
		record->start_ns = state->start_ns;
		record->duration_ns = now_ns - state->start_ns;
		record->thread = task->pid;
		record->process = task->tgid;
		record->woken_ns = state->woken_ns;
		record->slept_ns = state->slept_ns;
		record->cause = state->heard_id;
		record->id = id;
		submit_event(record);
	}
	state->wakes = 0;
	state->slept_ns = 0;
}

#endif /* FLEXTRACE_WAKE_UPS_BPF_H */

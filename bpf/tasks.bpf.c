// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Which threads are traced: the target with its threads and descendants, by task storage that children inherit. Also
 * what these threads have open or mapped when recording begins, and what the kernel has charged them when it ends.
 */
#include "adoption.bpf.h"
#include "aio.bpf.h"
#include "page_cache.bpf.h"
#include "wake_ups.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

enum {
	ANCESTORS_MAX = 64,
	MAPPING_EXECUTABLE = 4, /* VM_EXEC */
};

/* Process whose tree is taken in when the iterator runs. */
__u32 target_process = 0;

/*
 * At the end of a thread, or of its tracing: adds what the kernel charged it since tracing of it began. Whichever is first
 * counts: a thread may end while tracing does, and one that has ended is there until its parent has heard of it. Atomic, as
 * the walk over all threads can be preempted, and one end meanwhile on the same CPU.
 */
static __always_inline void settle_account(struct task_state *state, struct task_struct *task)
{
	struct account now;
	struct account *sum = account_of(ACCOUNT_KERNEL);
	if (!sum || __sync_val_compare_and_swap(&state->settled, 0, 1))
		return;
	note_account(&now, task);
	__sync_fetch_and_add(&sum->rchar, now.rchar - state->before.rchar);
	__sync_fetch_and_add(&sum->wchar, now.wchar - state->before.wchar);
	__sync_fetch_and_add(&sum->syscr, now.syscr - state->before.syscr);
	__sync_fetch_and_add(&sum->syscw, now.syscw - state->before.syscw);
	__sync_fetch_and_add(&sum->read_bytes, now.read_bytes - state->before.read_bytes);
	__sync_fetch_and_add(&sum->write_bytes, now.write_bytes - state->before.write_bytes);
	if (state->announced == ANNOUNCE_FAILED)
		count_full_ring(RECORD_TASK, bpf_ktime_get_ns());
}

/* A new thread has been charged nothing yet. */
SEC("tp_btf/task_newtask")
int BPF_PROG(task_newtask, struct task_struct *task, __u64 clone_flags)
{
	struct task_struct *maker = bpf_get_current_task_btf();
	struct task_state *maker_state = bpf_task_storage_get(&tasks, maker, NULL, 0);
	if (!maker_state)
		return 0;
	struct task_state *state = make_task_state(task);
	if (state) {
		state->creator = maker->pid;
		hear(state, all_news(maker_state), maker, bpf_ktime_get_ns());
	} else {
		count_loss(RECORD_TASK, bpf_ktime_get_ns());
	}
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(sched_process_exit, struct task_struct *task)
{
	struct task_state *state = bpf_task_storage_get(&tasks, task, NULL, 0);
	if (!state)
		return 0;
	settle_account(state, task);
	/* Killed in the middle of a call: no exit will come. */
	abandon_call(state);
	state->call = CALL_NONE;
	state->id = state->target_id = 0;
	if (BPF_CORE_READ(task, signal, live.counter) == 0)
		async_process_ends(task->tgid);
	return 0;
}

/*
 * Walks all tasks, after task_newtask is attached. A child that a thread makes before it is taken in can have a number that
 * was passed already: the recorder has them walked until none is found.
 */
SEC("iter/task")
int adopt_target(struct bpf_iter__task *context)
{
	struct task_struct *task = context->task;
	recorder_root = root_of(bpf_get_current_task_btf());
	if (!task)
		return 0;
	struct task_struct *ancestor = task;
	for (int i = 0; i < ANCESTORS_MAX; i++) {
		if ((__u32)BPF_CORE_READ(ancestor, tgid) == target_process) {
			adopt_task(task);
			return 0;
		}
		struct task_struct *parent = BPF_CORE_READ(ancestor, real_parent);
		if (parent == ancestor || !parent)
			return 0;
		ancestor = parent;
	}
	return 0;
}

/*
 * Writes a byte where a file was new, so that the recorder can make room for the next one: to judge one that is left out takes
 * room in the ring, too.
 */
static __always_inline __u32 announce_file(struct file *file, struct task_struct *task, struct seq_file *seq)
{
	__u32 last = file_id_last;
	__u8 byte = 0;
	__u32 id = identify_file_of(number_of(file), 0, number_of(task), bpf_ktime_get_ns());
	if (file_id_last != last)
		bpf_seq_write(seq, &byte, sizeof(byte));
	return id;
}

/* Files that were opened before recording began, or before the task came: every descriptor of the tasks just taken in. */
SEC("iter/task_file")
int announce_open_files(struct bpf_iter__task_file *context)
{
	struct task_struct *task = context->task;
	struct file *file = context->file;
	if (task && file && was_just_adopted(task))
		announce_file(file, task, context->meta->seq);
	return 0;
}

/* Files that were mapped before; their descriptors may be closed. */
SEC("iter/task_vma")
int announce_mapped_files(struct bpf_iter__task_vma *context)
{
	struct task_struct *task = context->task;
	struct vm_area_struct *area = context->vma;
	if (!task || !area || !was_just_adopted(task))
		return 0;
	struct file *file = area->vm_file;
	if (file)
		note_mapped(announce_file(file, task, context->meta->seq), area->vm_flags & MAPPING_EXECUTABLE);
	return 0;
}

/* Traced tasks that go on when recording ends. */
__u64 tasks_left = 0;

/* At the end of recording: what the traced tasks that still run were charged. From then on they are not traced. */
SEC("iter/task")
int collect_accounts(struct bpf_iter__task *context)
{
	struct task_struct *task = context->task;
	struct task_state *state = task ? bpf_task_storage_get(&tasks, task, NULL, 0) : NULL;
	if (!state)
		return 0;
	settle_account(state, task);
	tasks_left += !(task->flags & TASK_EXITING);
	bpf_task_storage_delete(&tasks, task);
	return 0;
}

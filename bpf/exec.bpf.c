// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A traced process that has become another program -> the files of that program, for the page faults that follow: its own,
 * and that of its loader, both of which the kernel maps. Another program has another name, so its TASK record is due again.
 *
 * At the exit of the system call the kernel has forgotten its number where the new program is of 32 bits.
 */
#include "exec.bpf.h"
#include "mapped_file.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* The file of the first instruction. */
static long note_loader(struct task_struct *task, struct vm_area_struct *area, void *context)
{
	struct file *file = area->vm_file;
	if (file)
		note_mapped(identify_file(file, 0, bpf_ktime_get_ns()), true);
	return 0;
}

static __always_inline __u32 note_program(struct file *program)
{
	__u32 id = identify_file(program, 0, bpf_ktime_get_ns());
	note_mapped(id, true);
	return id;
}

/*
 * Before the kernel maps the program, and touches its last page of data: with what is read around that, much of it. The call
 * is on this file meanwhile, for the inode below an overlay's (page_cache.bpf.c).
 */
SEC("tp_btf/sched_prepare_exec")
int BPF_PROG(sched_prepare_exec, struct task_struct *task, struct linux_binprm *binary)
{
	struct task_state *state = bpf_task_storage_get(&tasks, task, NULL, 0);
	struct file *program = state ? BPF_CORE_READ(binary, file) : NULL;
	if (!program)
		return 0;
	__u32 id = note_program(program);
	if (state->call != CALL_EXEC)
		return 0;
	state->file = id;
	state->inode_pointer = (__u64)BPF_CORE_READ(program, f_inode);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(sched_process_exec, struct task_struct *task)
{
	struct task_state *state = bpf_task_storage_get(&tasks, task, NULL, 0);
	if (!state)
		return 0;
	if (state->call == CALL_EXEC) {
		exec_ends(task, state);
		state->call = CALL_NONE;
		state->id = 0;
		state->file = 0;
	}
	state->announced = NOT_ANNOUNCED;

	struct mm_struct *memory = task->mm;
	struct file *program = memory ? BPF_CORE_READ(memory, exe_file) : NULL;
	if (!program)
		return 0;
	note_mapping(task, BPF_CORE_READ(program, f_inode), note_program(program), BPF_CORE_READ(memory, start_code));
	/* It begins in its loader, or without one in itself. */
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	__u64 nothing = 0;
	if (bpf_find_vma(task, regs->ip, note_loader, &nothing, 0) == MAPPING_LOCKED)
		count_loss(RECORD_FILE, bpf_ktime_get_ns());
	return 0;
}

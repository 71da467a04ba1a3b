/* SPDX-License-Identifier: Apache-2.0 OR BSD-2-Clause */
/*
 * Pages of a mapped file that were touched -> an IO record.
 */
#ifndef FLEXTRACE_RECORD_MMAP_BPF_H
#define FLEXTRACE_RECORD_MMAP_BPF_H

#include "announce.bpf.h"
#include "page_cache.bpf.h"
#include "page_fault.bpf.h"
#include "record_io.bpf.h"

struct mapped_pages {
	__u64 first, end; /* pages */
	__u64 id;
	__u64 wait_start_ns; /* 0 = was there at once */
	__u32 file;
};

/* Not what lies beyond the end of the file, or a filter leaves out. */
static __attribute__((noinline, unused)) void
send_mapped_pages(struct task_state *state, __u8 op, const struct mapped_pages *pages, const struct inode *inode)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u64 size_bytes = read_field(inode, i_size);
	__u64 offset = pages->first << PAGE_SHIFT;
	__u64 end_bytes = pages->end << PAGE_SHIFT;
	end_bytes = end_bytes < size_bytes ? end_bytes : size_bytes;
	if (end_bytes <= offset)
		return;
	__u64 bytes = end_bytes - offset;
	if (bytes < filter_size_bytes_min) {
		count_skip(SKIP_FILTERED);
		return;
	}
	/* It may make no call that announces it. */
	if (state->announced == NOT_ANNOUNCED || state->announced == ANNOUNCE_FAILED)
		announce_by_fault(task, state);
	__u64 now_ns = bpf_ktime_get_ns();
	operation_begins();
	operation_ends(op, SOURCE_MMAP, bytes);
	__u32 missed =
		op == IO_READ ? take_missed_of(pages->file, (__u64)inode, offset, bytes) : TRACE_NOT_MEASURED_U32;
	struct io_record *record = reserve_event(sizeof(struct io_record), RECORD_IO, now_ns);
	if (!record)
		return;
	record->kind = RECORD_IO;
	record->op = op;
	record->source = SOURCE_MMAP;
	record->processor_share = 0;
	record->flags = IO_ESTIMATED | (is_program(pages->file) ? IO_PROGRAM : 0);
	record->start_ns = pages->wait_start_ns ? pages->wait_start_ns : now_ns;
	record->duration_ns = now_ns - record->start_ns;
	record->thread = task->pid;
	record->process = task->tgid;
	record->file = pages->file;
	record->asked_bytes = bytes;
	record->offset = offset;
	record->result = bytes;
	record->missed_bytes = missed;
	record->id = pages->id;
	submit_event(record);
}

#endif /* FLEXTRACE_RECORD_MMAP_BPF_H */

// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Direct I/O of a file system (through the kernel's iomap) -> which of several requests runs, and when its device was done.
 *
 * The file system hands a struct kiocb through, which is the beginning of the struct io_kiocb of io_uring and of the struct
 * aio_kiocb of io_submit. Since 6.6; before, requests end where the program learns of it (aio.bpf.c).
 */
#include "async_record.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

enum {
	/* FMODE_BACKING was the higher of these until 6.14, and is the lower one since; each has had another meaning. */
	FMODE_MAYBE_BACKING = 1 << 24 | 1 << 25,
};

/* An overlay gives the file system below a kiocb of its own, which leads to that of the program. */
static __always_inline __u64 kiocb_of_program(struct kiocb *kiocb)
{
	struct backing_aio *backing = (struct backing_aio *)kiocb;
	if (!bpf_core_type_exists(struct backing_aio) || !(BPF_CORE_READ(kiocb, ki_filp, f_mode) & FMODE_MAYBE_BACKING))
		return number_of(kiocb);
	struct kiocb *above = BPF_CORE_READ(backing, orig_iocb);
	bool is_overlay = BPF_CORE_READ(above, ki_filp, f_inode, i_sb, s_magic) == OVERLAY_MAGIC;
	return is_overlay ? (__u64)above : number_of(kiocb);
}

/* In io_submit: enters where the request is found again at its end. */
static __always_inline void aio_request_begins(struct task_state *state, __u64 kiocb)
{
	struct aio_kiocb *request = (struct aio_kiocb *)kiocb;
	struct async_key key = async_key_of(BPF_CORE_READ(request, ki_res.obj));
	struct async_operation *operation = async_operation_of(&key);
	if (!operation || operation->file_pointer != (__u64)BPF_CORE_READ(request, rw.ki_filp)) {
		async_switch(state, 0);
		return;
	}
	if (operation->appends)
		operation->position = BPF_CORE_READ(request, rw.ki_pos);
	struct async_key *known = bpf_map_lookup_elem(&aio_keys, &kiocb);
	bool entered = known;
	if (known)
		*known = key;
	else
		entered = !bpf_map_update_elem(&aio_keys, &kiocb, &key, BPF_ANY);
	if (entered) {
		operation->kiocb = kiocb;
		/* Its context counts what is left in state->aio_awaited when the call ends. */
		state->aio_awaited -= operation->awaited;
		operation->awaited = 0;
	}
	async_switch_to(state, key.request, operation);
}

SEC("tp_btf/iomap_dio_rw_begin")
int BPF_PROG(iomap_dio_rw_begin, struct kiocb *kiocb)
{
	if (!kiocb->ki_complete)
		return 0; /* a system call */
	struct task_state *state = current_state();
	if (!state)
		return 0;
	__u64 pointer = kiocb_of_program(kiocb);
	if (state->call == CALL_IO_SUBMIT)
		aio_request_begins(state, pointer);
	else
		async_switch(state, pointer);
	return 0;
}

/* In whatever context the device's interrupt or the file system's worker runs. */
SEC("tp_btf/iomap_dio_complete")
int BPF_PROG(iomap_dio_complete, struct kiocb *kiocb, int error, long result)
{
	if (!kiocb->ki_complete)
		return 0; /* a system call */
	__u64 pointer = kiocb_of_program(kiocb);
	struct async_operation *operation = async_operation_of_kiocb(pointer);
	if (!operation)
		return 0;
	bool all = result > 0 && (__u64)result == operation->asked_bytes;
	if (operation->source == SOURCE_IO_URING) {
		if (operation->silent && all)
			uring_request_ends(pointer, result, false);
		return 0;
	}
	struct async_key *found = bpf_map_lookup_elem(&aio_keys, &pointer);
	if (!found)
		return 0;
	struct async_key key = *found; /* of a live operation, or there would be none */
	operation->noted_ns = bpf_ktime_get_ns();
	/* What is short, while its thread is still in io_submit, may go on through the page cache. */
	struct task_state *state = current_state();
	bool goes_on = !all && state && state->call == CALL_IO_SUBMIT;
	if (goes_on)
		aio_await(operation, &key, 1);
	else
		aio_request_ends(key.request, key.process, result, operation->noted_ns, 0);
	return 0;
}

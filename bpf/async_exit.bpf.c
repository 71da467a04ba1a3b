// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A process that ends -> the end of its requests of which it has not learned; and what to forget when tables are full.
 */
#include "aio.bpf.h"
#include "async_record.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct ended {
	__u64 process;
	__u64 now_ns;
};

static long look_at_context(void *map, const struct async_key *key, struct aio_context *context, struct ended *ended)
{
	if (key->process == ended->process)
		aio_scan_ring(key->request);
	return 0;
}

static long forget_context(void *map, const struct async_key *key, struct aio_context *context, struct ended *ended)
{
	struct async_key own = *key;
	if (own.process == ended->process)
		bpf_map_delete_elem(&aio_contexts, &own);
	return 0;
}

static long end_operation(void *map, const struct async_key *key, struct async_operation *operation,
			  struct ended *ended)
{
	if (operation->process != ended->process)
		return 0;
	struct async_key own = *key;
	if (operation->phase != ASYNC_LIVE) {
		bpf_map_delete_elem(&async_operations, &own);
		return 0;
	}
	if (operation->source == SOURCE_IO_URING) {
		struct io_kiocb *request = (struct io_kiocb *)own.request;
		/* Others are cancelled or completed, which is seen. */
		if (operation->silent)
			uring_request_ends(own.request, BPF_CORE_READ(request, cqe.res), false);
		return 0;
	}
	/* The kernel waits for it, and direct_io.bpf.c sees its end. */
	if (operation->kiocb)
		return 0;
	async_abandon(operation);
	count_loss(operation->kind, ended->now_ns);
	bpf_map_delete_elem(&async_operations, &own);
	return 0;
}

enum {
	FORGET_INTERVAL_NS = 1000 * 1000 * 1000,
	FORGOTTEN_MIN = OPERATIONS_IN_FLIGHT_MAX / 16, /* for which it was worth it */
};

static __u64 forgot_ns;
static __u64 forgotten; /* in all */

static long forget_ended(void *map, const struct async_key *key, struct async_operation *operation, void *context)
{
	struct async_key own = *key;
	if (operation->phase == ASYNC_ENDED && !bpf_map_delete_elem(&async_operations, &own))
		forgotten++;
	return 0;
}

static long forget_kiocb(void *map, const __u64 *kiocb, const struct async_key *key, void *context)
{
	__u64 own = *kiocb;
	struct async_key request = *key;
	struct async_operation *operation = async_operation_of(&request);
	if (!operation || operation->kiocb != own)
		bpf_map_delete_elem(&aio_keys, &own);
	return 0;
}

/* It costs some ms: not again at once where it was in vain, as the table is full of what is in flight. */
int async_forget_ended(__u64 now_ns)
{
	__u64 before = forgotten;
	if (now_ns - forgot_ns < FORGET_INTERVAL_NS)
		return 0;
	async_has_forgotten = 1;
	bpf_for_each_map_elem(&async_operations, forget_ended, NULL, 0);
	bpf_for_each_map_elem(&aio_keys, forget_kiocb, NULL, 0);
	if (forgotten - before < FORGOTTEN_MIN)
		forgot_ns = now_ns;
	return 0;
}

static __always_inline bool may_have_requests(const __u32 *process)
{
	return async_processes_beyond || bpf_map_lookup_elem(&async_processes, process);
}

int async_process_looks(void)
{
	struct ended ended = {.process = bpf_get_current_pid_tgid() >> 32};
	__u32 process = ended.process;
	if (may_have_requests(&process))
		bpf_for_each_map_elem(&aio_contexts, look_at_context, &ended, 0);
	return 0;
}

int async_process_ends(__u64 process)
{
	struct ended ended = {.process = process, .now_ns = bpf_ktime_get_ns()};
	__u32 key = process;
	if (!may_have_requests(&key))
		return 0;
	async_process_looks();
	bpf_for_each_map_elem(&async_operations, end_operation, &ended, 0);
	bpf_for_each_map_elem(&aio_contexts, forget_context, &ended, 0);
	bpf_map_delete_elem(&async_processes, &key);
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 OR BSD-2-Clause */
/*
 * What syscalls.bpf.c calls at the entry and exit of the calls of libaio, with their arguments.
 */
#ifndef FLEXTRACE_AIO_BPF_H
#define FLEXTRACE_AIO_BPF_H

#include "maps.bpf.h"

/*
 * io_submit. iocbs: address of the array of addresses. Returns 1 if it goes on only behind a look at the rings of all contexts:
 * these are three beside each other, and not within, for the stack of 6.1 (async_record.bpf.h).
 */
int aio_submit_begins(__u64 context, __u64 count, __u64 iocbs);
int aio_submit_goes_on(__u64 count, __u64 iocbs);
/* The first of two at its exit, beside each other, too. */
int aio_submit_returned(__u64 iocbs, __s64 result);
int aio_submit_ends(__u64 context, __u64 iocbs, __s64 result);
/*
 * Within io_submit: makes the request of the call that moves this page of the file the running operation. For whoever
 * sees pages of buffered requests, which nothing announces one by one; ask only if state->call is CALL_IO_SUBMIT.
 */
int aio_runs_at(__u64 inode, __u64 offset);
/* Exit of io_getevents and io_pgetevents, which have written count events. */
int aio_events_returned(__u64 context, __u64 events, __s64 count);
/* Entry of io_getevents and io_pgetevents. */
int aio_look(__u64 context);
/*
 * Exit of io_setup, which has written the context to this address, and entry of io_destroy. Nothing is kept from one context
 * to the next at the same place, which another thread may make while io_destroy still waits for the requests of the first.
 */
int aio_context_begins(__u64 address);
int aio_context_ends(__u64 context);
/*
 * Looks at the rings of all contexts of the process that runs. At the entry of execve, and of exit_group (needed before 6.16),
 * where its memory can still be read.
 */
int async_process_looks(void);
/* sched_process_exit of the last thread of a process. */
int async_process_ends(__u64 process);

#endif /* FLEXTRACE_AIO_BPF_H */

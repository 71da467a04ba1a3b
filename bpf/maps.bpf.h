/* SPDX-License-Identifier: Apache-2.0 OR BSD-2-Clause */
/*
 * State that the BPF objects share, and the way from a program into the ring of its CPU. Maps and globals are weak, so
 * that every object carries the definition and the linker keeps one.
 *
 * The verifier of 6.18 looks through all types of the kernel for each pointer that is read off the argument of a tracepoint
 * or off a task, once for each way through the program that leads there. So they are read at the begin, where only one
 * does, or by BPF_CORE_READ.
 */
#ifndef FLEXTRACE_MAPS_BPF_H
#define FLEXTRACE_MAPS_BPF_H

#include "kernel_types.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "ring_event.h"

enum {
	OPERATION_COUNT_BITS = 40,
	REQUESTS_IN_FLIGHT_MAX = 1 << 16,
	FILLING_SHARE = 4, /* a ring of which that part is full is filling */
	DIRTY_STRETCHES_MAX = 1 << 18,
	DIRTY_STRETCH_BYTES = 1 << 20,
	THREAD_COMPAT = 0x2, /* TS_COMPAT */
};

/* One ring for each CPU, so that producers never share a lock; made and put in by the recorder. */
struct ring_of_cpu {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, CPUS_MAX);
	__type(key, __u32);
	__array(values, struct ring_of_cpu);
} rings __weak SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, TRACE_KINDS_MAX);
	__type(key, __u32);
	__type(value, struct loss);
} losses __weak SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SKIP_KINDS);
	__type(key, __u32);
	__type(value, __u64);
} skips __weak SEC(".maps");

/* Whether the TASK record of a thread was sent. One that never got through is counted as lost when the thread ends. */
enum announced {
	NOT_ANNOUNCED = 0,
	ANNOUNCED = 1,
	ANNOUNCE_FAILED = 2, /* to be tried again */
	ANNOUNCED_BY_FAULT = 3, /* to be sent again at its first call if it has another name or parent by then */
};

enum {
	KNOWN_FILES = 4,
};

/* Of a struct file, as long as it has this inode with this number and generation, and no id was taken back. */
struct known_file {
	__u64 file_pointer; /* 0 = nothing that is recorded */
	__u64 inode_pointer;
	unsigned long inode_number;
	__u64 data_inode_pointer; /* what the page cache and the block layer know: of block devices another */
	__u32 generation;
	__u32 file; /* its id */
	__u32 ids_forgotten; /* when this was found out */
	__u16 in_memory; /* on a file system without a device */
	__u16 is_directory;
};

/*
 * A traced thread has one of these; a thread without is not traced. Made at fork, so that the whole tree has it.
 *
 * The operation that runs is what block requests and page-cache misses in this thread are caused by. A system call sets
 * it at its entry and clears it at its exit; within io_submit and io_uring_enter it is one request after the other.
 */
struct task_state {
	__u32 call; /* enum call of the system call that is running, CALL_NONE outside */
	__u32 announced; /* enum announced */
	__u32 creator; /* thread that made this one; 0 = it is older than the recording */
	__u32 adopted_in; /* round in which it was taken in (adoption.bpf.h); 0 = made by a traced thread */
	__u32 async_noted; /* in async_processes (async_record.bpf.h) */
	__u32 settled; /* its account (tasks.bpf.c) */
	__u64 submitted; /* request of io_uring that was submitted last, if none has got its file since */
	__u64 submitted_inode; /* of the write that was submitted last, with the time that it found */
	__u32 submitted_ctime_nsec;
	/* Of io_submit. */
	__u32 aio_counted; /* requests that the context awaits in advance */
	__s32 aio_awaited; /* requests among them that are there, and to be awaited */
	__u64 aio_looked; /* requests of the call, from the first one on, that could be read */
	__u64 aio_begun_ns; /* its entry */
	__u64 aio_context;
	__u64 aio_looks_elsewhere; /* 1 = a request seemed to be in flight in another context: all are looked at, once */
	__u64 id_base; /* operation ids of this thread start here; 0 = not yet given */
	__u64 id_count;
	/* Of processor_time.bpf.h. */
	__u64 processor_ns; /* had, but for the time since ... */
	__u64 got_processor_ns; /* ... then; 0 = has none, or was not seen to get it */
	__u64 call_before_end_ns; /* end of the last recorded call; 0 = none */
	__u64 call_before_processor_ns; /* had by then */
	__u64 lost_processor_ns; /* last; 0 = was not seen to */
	__u64 sleeps; /* since the end of that call */
	__u64 entered_ns; /* of a call, before anything is done for its record; 0 = not looked at */
	/* Of wake_ups.bpf.h. */
	__u64 call_before_id; /* of the last recorded call */
	__u64 heard_id; /* call of another thread: the last to end of those that wakers had made or had heard of; 0 = none */
	__u64 heard_end_ns;
	__u64 woken_ns; /* these four of the time since the last recorded call, as in wake_record */
	__u64 slept_ns;
	__u32 waker;
	__u32 wakes; /* 0 = it has heard of nothing new */
	__u64 to_be_handed_on; /* whether it has woken nobody since it has heard of that */

	/* The operation that runs. */
	__u64 id; /* 0 = none */
	__u64 start_ns;
	__u64 file_pointer; /* struct file */
	__u64 file_inode_pointer; /* f_inode */
	__u64 inode_pointer; /* struct inode of the data, which is f_mapping->host */
	__u64 request; /* struct io_kiocb or aio_kiocb, 0 = a plain system call */
	__u32 file; /* file id, 0 = not one that is recorded */
	__u32 descriptor_flags; /* f_flags */
	__s64 position; /* offset where known, else f_pos (appending: i_size) at entry */
	__u64 asked_bytes;
	__u32 position_exact; /* position was read inside the call, with the lock held */
	__u32 positioned; /* the caller names the offset */
	__u32 in_memory; /* a direct read comes from no device either */
	__u32 appends; /* the kernel appends, whatever the caller names */
	__u32 entry_flags; /* enum io_flag that only the entry of the call can tell */
	__u32 processor_share; /* as in its record */
	__u64 faults_before; /* task->min_flt at its start */
	__u64 read_bytes_before; /* task->ioac.read_bytes, the same */
	__u64 memory; /* of the mapping of the data that was looked up last: where it begins, */
	__u64 memory_bytes; /* how long it is, 0 = not known, */
	__u32 memory_flags; /* and IO_SHARED_MEMORY or 0 */
	__u64 read_addresses[2]; /* where its last reads went to */
	__u64 run_delay_before_ns; /* task->sched_info.run_delay at its start */
	__u64 position_lock; /* address of the struct file's f_pos_lock */
	/* Pages that an operation has brought into the cache of its file: page_cache.bpf.h. */
	__u64 brought_id; /* which operation that was */
	__u64 brought_first, brought_end;
	__u64 brought_read_bytes; /* task->ioac.read_bytes before the first of them */
	__u64 direct_bio; /* of direct I/O: the bio that was submitted last, block_submission.bpf.h */
	__u64 direct_end; /* where it ends in the file */

	/* Second file of sendfile, splice and copy_file_range: the one that is written. */
	__u64 target_file_pointer;
	__u64 target_id;
	__s64 target_position;
	__u32 target_file;
	__u32 target_flags;

	/* Files of the last calls, mostly those of the next: spares the search for their ids (known_file.bpf.h). */
	struct known_file known_files[KNOWN_FILES];

	/* Of task->ioac at the entry of execve: what the kernel itself reads of the program is no call of the program. */
	__u64 exec_rchar, exec_syscr;
	/* As its TASK record has them, if it was sent by a page fault. */
	__u64 announced_name[2]; /* of 16 bytes, as TASK_COMM_LEN */
	__u32 announced_parent;
	/* task->ioac when tracing of this thread began. */
	struct account before;
};
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct task_state);
} tasks __weak SEC(".maps");

/*
 * By process, several of which share a mark: 0 = none of its tasks is traced. Every system call of every process asks, which
 * is cheaper than to look for the state of a task that has none.
 */
enum { TRACED_MARKS = 1 << 12 };
__u8 traced_marks[TRACED_MARKS] __weak = {};

/* Never traced: what it writes would be recorded, and written. */
const volatile __u32 recorder_process __weak = 0;

/* Its root directory (struct dentry), noted by the iterators, which run in the recorder. */
__u64 recorder_root __weak = 0;

static __always_inline __u64 root_of(struct task_struct *task)
{
	return (__u64)BPF_CORE_READ(task, fs, root.dentry);
}

/* Whether it makes a call of the 32-bit kind, which is not recorded. */
static __always_inline bool is_in_compat_call(const struct task_struct *task)
{
	return task->thread_info.status & THREAD_COMPAT;
}

/* Whether a number is that of a call with 64-bit registers and 32-bit pointers, which is not recorded either. */
static __always_inline bool is_x32_call(unsigned long number)
{
	return number - X32_CALLS < SYSCALL_NUMBERS_MAX;
}

static __always_inline bool may_be_traced(const struct task_struct *task)
{
	return traced_marks[(__u32)task->tgid % TRACED_MARKS];
}

/* Before its state is made. */
static __always_inline void mark_traced(const struct task_struct *task)
{
	traced_marks[(__u32)BPF_CORE_READ(task, tgid) % TRACED_MARKS] = 1;
}

/*
 * What a task has in one of the maps of tasks, made if it has none; NULL = no memory. Where another processor makes or removes
 * something of the same task at that moment the kernel may refuse (-EEXIST, -EAGAIN), but not a second time.
 */
static __always_inline void *make_storage(void *map, struct task_struct *task)
{
	void *storage = bpf_task_storage_get(map, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	return storage ? storage : bpf_task_storage_get(map, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
}

/* The state of a task that is traced from now on. Its maker and the walk that takes tasks in can make it at once. */
static __always_inline struct task_state *make_task_state(struct task_struct *task)
{
	mark_traced(task);
	return make_storage(&tasks, task);
}

/* Which task dirtied a stretch of a file last; written where pages get dirty, read when they are written back. */
struct dirty_key {
	__u32 file;
	__u32 stretch; /* offset / DIRTY_STRETCH_BYTES */
};
struct dirtier {
	__u64 cause; /* operation id, 0 = a store to a mapping */
	__u32 thread;
	__u32 process;
};
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, DIRTY_STRETCHES_MAX);
	__type(key, struct dirty_key);
	__type(value, struct dirtier);
} dirtiers __weak SEC(".maps");

/* How many were entered, and up to how many the kernel pushes none out for sure: set by the recorder. */
__u64 dirtiers_entered __weak = 0;
const volatile __u64 dirtiers_kept __weak = 0;

static __always_inline void enter_dirtier(const struct dirty_key *key, const struct dirtier *dirtier)
{
	bpf_map_update_elem(&dirtiers, key, dirtier, BPF_ANY);
	__sync_fetch_and_add(&dirtiers_entered, 1);
}

/* Then who dirtied a stretch of which nothing is entered is not known, instead of nobody that is traced. */
static __always_inline bool may_have_forgotten_dirtiers(void)
{
	return dirtiers_entered > dirtiers_kept;
}

/* What the tracer saw of all traced threads: [op - 1][source], independent of whether a record got through. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, TOTALS_MAX);
	__type(key, __u32);
	__type(value, struct total);
} totals __weak SEC(".maps");

/* Data operations in flight, over all traced threads. */
__u64 in_flight __weak = 0;
__u64 in_flight_max __weak = 0;

/* Both sides of the closure check: what the calls that were seen amount to, and what the kernel charged their threads. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, ACCOUNTS);
	__type(key, __u32);
	__type(value, struct account);
} accounts __weak SEC(".maps");

static __always_inline void count_skip(__u32 skip)
{
	__u64 *count = bpf_map_lookup_elem(&skips, &skip);
	if (count)
		__sync_fetch_and_add(count, 1);
}

/* Changes with every loss, and tells the recorder to look at them, which takes a system call. */
__u64 losses_counted __weak = 0;

static __always_inline void count_loss(__u32 kind, __u64 now_ns)
{
	struct loss *loss = bpf_map_lookup_elem(&losses, &kind);
	if (!loss)
		return;
	loss->last_ns = now_ns;
	__sync_fetch_and_add(&loss->count, 1);
	__sync_fetch_and_add(&losses_counted, 1);
}

/* What the recorder is to be woken for (enum alarm). For every event that would cost more than the event. */
__u32 alarm __weak = ALARM_OFF;

static __always_inline void *ring_of_this_cpu(void)
{
	__u32 cpu = bpf_get_smp_processor_id();
	return bpf_map_lookup_elem(&rings, &cpu);
}

/* Wakes the recorder by an event of nothing, which it passes over. */
static __always_inline void sound_alarm(void *ring)
{
	void *nothing = bpf_ringbuf_reserve(ring, sizeof(__u64), 0);
	if (!nothing)
		return;
	alarm = ALARM_OFF;
	bpf_ringbuf_discard(nothing, BPF_RB_FORCE_WAKEUP);
}

static __always_inline bool is_filling(void *ring)
{
	return bpf_ringbuf_query(ring, BPF_RB_AVAIL_DATA) > bpf_ringbuf_query(ring, BPF_RB_RING_SIZE) / FILLING_SHARE;
}

/* Where the next event goes, or NULL. */
static __always_inline void *ring_for_event(void)
{
	void *ring = ring_of_this_cpu();
	if (ring && alarm != ALARM_OFF && is_filling(ring))
		sound_alarm(ring);
	return ring;
}

/* Space for one event in this CPU's ring, or NULL. The size must be a constant. */
#define try_reserve_event(event_bytes)                                   \
	({                                                               \
		void *ring = ring_for_event();                           \
		ring ? bpf_ringbuf_reserve(ring, event_bytes, 0) : NULL; \
	})

/* Records that were lost for want of room in a ring, and for nothing else. */
__u64 lost_for_room __weak = 0;

static __always_inline void count_full_ring(__u32 kind, __u64 now_ns)
{
	count_loss(kind, now_ns);
	__sync_fetch_and_add(&lost_for_room, 1);
}

/* The same; NULL after counting the loss. */
#define reserve_event(event_bytes, record_kind, now_ns)       \
	({                                                    \
		void *event = try_reserve_event(event_bytes); \
		if (!event)                                   \
			count_full_ring(record_kind, now_ns); \
		event;                                        \
	})

static __always_inline struct account *account_of(__u32 side)
{
	return bpf_map_lookup_elem(&accounts, &side);
}

/* The state of the thread that runs, NULL if it is not traced. */
static __always_inline struct task_state *current_state(void)
{
	return bpf_task_storage_get(&tasks, bpf_get_current_task_btf(), NULL, 0);
}

__u64 id_base_last __weak = 0;

/* Unique in the trace, without a counter that threads share: each thread has its own range. */
static __always_inline __u64 next_operation_id(struct task_state *state)
{
	if (!state->id_base)
		state->id_base = (__sync_fetch_and_add(&id_base_last, 1) + 1) << OPERATION_COUNT_BITS;
	return state->id_base + ++state->id_count;
}

static __always_inline void operation_begins(void)
{
	__u64 now = __sync_fetch_and_add(&in_flight, 1) + 1;
	/* Two CPUs can overwrite each other's maximum only by one that was true at the same moment. */
	if (now > in_flight_max)
		in_flight_max = now;
}

/* An operation whose end nobody will see. */
static __always_inline void operation_is_abandoned(void)
{
	__sync_fetch_and_add(&in_flight, -1);
}

/* sendfile, splice and copy_file_range. */
static __always_inline bool is_between_files(__u32 call)
{
	return call > CALL_DESCRIPTOR_LAST && call <= CALL_TWO_FILES_LAST;
}

/* Of a call that runs. */
static __always_inline bool is_data_call(__u32 call)
{
	return call <= CALL_DATA_LAST || is_between_files(call);
}

/* The call that runs in a thread, if it moves data: it will not end, or it will begin anew. */
static __always_inline void abandon_call(const struct task_state *state)
{
	if (state->id && state->call != CALL_NONE && is_data_call(state->call))
		operation_is_abandoned();
	if (state->target_id)
		operation_is_abandoned();
}

/* result as in io_record. Atomic, as an interrupt may end another operation meanwhile. */
static __always_inline void operation_ends(__u8 op, __u8 source, __s64 result)
{
	__sync_fetch_and_add(&in_flight, -1);
	__u32 key = total_key(op, source);
	struct total *total = bpf_map_lookup_elem(&totals, &key);
	if (!total)
		return;
	if (result <= 0) {
		__sync_fetch_and_add(&total->failed, 1);
		return;
	}
	__sync_fetch_and_add(&total->count, 1);
	__sync_fetch_and_add(&total->bytes, result);
}

static __always_inline void submit_event(void *event)
{
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
}

/* One for which the recorder has something to look up. */
static __always_inline void submit_for_lookup(void *event)
{
	bool wakes = alarm == ALARM_FOR_LOOKUPS;
	if (wakes)
		alarm = ALARM_OFF;
	bpf_ringbuf_submit(event, wakes ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP);
}

#endif /* FLEXTRACE_MAPS_BPF_H */

// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * System calls of traced threads -> IO, FILEOP, FILE and TASK records.
 *
 * sys_enter remembers what only the entry knows (time, file, position), sys_exit reads the arguments again (they are
 * still in pt_regs), adds the result and sends one record. A thread that is not traced leaves after one lookup.
 */
#include "file_identity.bpf.h"
#include "file_position.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Which call each system call number is: filled by the recorder before load. */
const volatile __u8 call_of_syscall[SYSCALL_NUMBERS_MAX] = {};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} operation_counts SEC(".maps");

enum {
	OPEN_CREATE = 0100,
	OPEN_TRUNCATE = 01000,
	OPEN_DSYNC = 010000,
	OPEN_DIRECT = 040000,
	OPEN_SYNC = 04010000,
	RWF_HIPRI = 0x1,
	RWF_DSYNC = 0x2,
	RWF_SYNC = 0x4,
	RWF_NOWAIT = 0x8,
	THREAD_COMPAT = 0x2, /* TS_COMPAT */
	AT_FDCWD = -100,
	VECTORS_MAX = 128, /* longer vectors are recorded with asked = done */
	RESULT_RESTART_FIRST = -516, /* -ERESTART_RESTARTBLOCK .. -ERESTARTSYS: the call will be entered again */
	RESULT_RESTART_LAST = -512,
};

struct io_vector {
	__u64 base;
	__u64 bytes;
};

/* Unique without a counter that CPUs share: the CPU is the low part. */
static __always_inline __u64 next_operation_id(void)
{
	__u32 zero = 0;
	__u64 *count = bpf_map_lookup_elem(&operation_counts, &zero);
	if (!count)
		return 0;
	return (__sync_fetch_and_add(count, 1) + 1) * CPUS_MAX + bpf_get_smp_processor_id();
}

static __always_inline struct file *file_of_descriptor(struct task_struct *task, __u32 descriptor)
{
	/* Loads through pointers that the verifier knows cost less than calls of the read helper. */
	struct files_struct *files = task->files;
	struct fdtable *table = files ? files->fdt : NULL;
	if (!table || descriptor >= table->max_fds)
		return NULL;
	struct file *file = NULL;
	bpf_probe_read_kernel(&file, sizeof(file), &table->fd[descriptor]);
	return file;
}

static __always_inline void announce_task(struct task_struct *task, struct task_state *state, __u64 now_ns)
{
	if (state->announced)
		return;
	struct task_record *record = reserve_event(sizeof(struct task_record), RECORD_TASK, now_ns);
	if (!record)
		return;
	__builtin_memset(record, 0, sizeof(*record));
	record->kind = RECORD_TASK;
	record->time_ns = now_ns;
	record->thread = task->pid;
	record->process = task->tgid;
	record->parent_process = BPF_CORE_READ(task, real_parent, tgid);
	record->cgroup = bpf_get_current_cgroup_id();
	bpf_get_current_comm(record->comm, sizeof(record->comm));
	submit_event(record);
	state->announced = 1;
}

SEC("tp_btf/sys_enter")
int BPF_PROG(sys_enter, struct pt_regs *regs, long number)
{
	if ((unsigned long)number >= SYSCALL_NUMBERS_MAX)
		return 0;
	__u32 call = call_of_syscall[number];
	if (call == CALL_NONE)
		return 0;
	struct task_struct *task = bpf_get_current_task_btf();
	struct task_state *state = bpf_task_storage_get(&tasks, task, NULL, 0);
	if (!state)
		return 0;

	state->call = CALL_NONE;
	if (task->thread_info.status & THREAD_COMPAT) {
		count_skip(SKIP_COMPAT);
		return 0;
	}
	__u64 now_ns = bpf_ktime_get_ns();
	state->file = 0;
	state->position_exact = 0;
	state->position_lock = 0;
	state->start_ns = now_ns;
	if (call <= CALL_DESCRIPTOR_LAST) {
		struct file *file = file_of_descriptor(task, regs->di);
		if (!file)
			return 0; /* the call will say EBADF */
		bool directories = call == CALL_FSYNC || call == CALL_FDATASYNC || call == CALL_CLOSE;
		state->file = identify_file(file, directories, now_ns);
		if (!state->file)
			return 0;
		struct inode *inode = BPF_CORE_READ(file, f_inode);
		state->descriptor_flags = BPF_CORE_READ(file, f_flags);
		state->file_pointer = (__u64)file;
		state->inode_pointer = (__u64)inode;
		state->position_lock = (__u64)file + bpf_core_field_offset(struct file, f_pos_lock);
		if (call <= CALL_DATA_LAST)
			note_position_rule(regs, state, call);
	}
	announce_task(task, state, now_ns);
	state->id = next_operation_id();
	state->call = call;
	/* The work above is the recorder's, not the application's. */
	state->start_ns = bpf_ktime_get_ns();
	/* Read after the start is taken, so that whoever moves it later overlaps this call in time. */
	if (uses_position(state, call))
		state->position = position_before(state);
	return 0;
}

static __always_inline __u32 descriptor_io_flags(__u32 descriptor_flags)
{
	__u32 flags = 0;
	if (descriptor_flags & OPEN_DIRECT)
		flags |= IO_DIRECT;
	if (descriptor_flags & OPEN_APPEND)
		flags |= IO_APPEND;
	/* O_SYNC contains the bit of O_DSYNC. */
	if ((descriptor_flags & OPEN_SYNC) == OPEN_SYNC)
		flags |= IO_SYNC;
	else if (descriptor_flags & OPEN_DSYNC)
		flags |= IO_DSYNC;
	return flags;
}

static __always_inline __u32 call_io_flags(__u32 rwf)
{
	__u32 flags = 0;
	if (rwf & RWF_HIPRI)
		flags |= IO_HIPRI;
	if (rwf & RWF_DSYNC)
		flags |= IO_DSYNC;
	if (rwf & RWF_SYNC)
		flags |= IO_SYNC;
	if (rwf & RWF_NOWAIT)
		flags |= IO_NOWAIT;
	if (rwf & RWF_APPEND)
		flags |= IO_APPEND;
	return flags;
}

static __always_inline __u32 vector_bytes(const struct io_vector *vectors, __u64 count, __s64 done)
{
	__u64 total = 0;
	if (count > VECTORS_MAX)
		return done > 0 ? done : 0;
	for (__u32 i = 0; i < VECTORS_MAX && i < count; i++) {
		struct io_vector vector = {};
		bpf_probe_read_user(&vector, sizeof(vector), &vectors[i]);
		total += vector.bytes;
	}
	return total > 0xffffffff ? 0xffffffff : total;
}

static __always_inline void send_io(struct pt_regs *regs, struct task_struct *task, struct task_state *state,
				    __s64 after, __s64 done, __u64 now_ns)
{
	struct io_record *record = reserve_event(sizeof(struct io_record), RECORD_IO, now_ns);
	if (!record)
		return;
	__u32 call = state->call;
	bool is_read = call == CALL_READ || call == CALL_PREAD || call == CALL_READV || call == CALL_PREADV ||
		       call == CALL_PREADV2;
	bool vectored = call >= CALL_READV;
	__u32 flags = descriptor_io_flags(state->descriptor_flags);
	if (call == CALL_PREADV2 || call == CALL_PWRITEV2)
		flags |= call_io_flags(regs->r9);
	if (!is_read)
		flags = state->appends ? flags | IO_APPEND : flags & ~IO_APPEND;
	__u32 width = 0;
	__u64 offset = state->positioned && !state->appends ? regs->r10 : implicit_offset(state, after, done, &width);

	record->kind = RECORD_IO;
	record->op = is_read ? IO_READ : IO_WRITE;
	record->source = SOURCE_SYSCALL;
	record->reserved = 0;
	record->flags = flags | (state->positioned ? IO_POSITIONED : 0) | (vectored ? IO_VECTORED : 0) |
			(width ? IO_OFFSET_INFERRED : 0);
	record->start_ns = state->start_ns;
	record->duration_ns = now_ns - state->start_ns;
	record->thread = task->pid;
	record->process = task->tgid;
	record->file = state->file;
	record->asked_bytes = vectored		      ? vector_bytes((const struct io_vector *)regs->si, regs->dx, done)
			      : regs->dx > 0xffffffff ? 0xffffffff
						      : regs->dx;
	record->offset = offset;
	record->result = done;
	/* Until the recorder has resolved an inferred offset this carries the width of its interval. */
	record->missed_bytes = width ? width : TRACE_NOT_MEASURED_U32;
	record->id = state->id;
	submit_event(record);
}

static __always_inline struct fileop_record *reserve_fileop(struct task_struct *task, struct task_state *state,
							    __s64 result, __u64 now_ns)
{
	struct fileop_record *record = reserve_event(sizeof(struct fileop_record), RECORD_FILEOP, now_ns);
	if (!record)
		return NULL;
	__builtin_memset(record, 0, sizeof(*record));
	record->kind = RECORD_FILEOP;
	record->source = SOURCE_SYSCALL;
	record->flags = descriptor_io_flags(state->descriptor_flags);
	record->start_ns = state->start_ns;
	record->duration_ns = now_ns - state->start_ns;
	record->thread = task->pid;
	record->process = task->tgid;
	record->file = state->file;
	record->result = result;
	record->id = state->id;
	return record;
}

static __always_inline void send_descriptor_operation(struct pt_regs *regs, struct task_struct *task,
						      struct task_state *state, __s64 result, __u64 now_ns)
{
	struct fileop_record *record = reserve_fileop(task, state, result, now_ns);
	if (!record)
		return;
	switch (state->call) {
	case CALL_CLOSE:
		record->op = FILEOP_CLOSE;
		record->argument = regs->di;
		break;
	case CALL_FSYNC:
		record->op = FILEOP_FSYNC;
		break;
	case CALL_FDATASYNC:
		record->op = FILEOP_FDATASYNC;
		break;
	case CALL_SYNC_FILE_RANGE:
		record->op = FILEOP_SYNC_FILE_RANGE;
		record->argument = regs->si;
		record->length = regs->dx;
		record->flags |= (__u32)regs->r10 << 16;
		break;
	case CALL_FTRUNCATE:
		record->op = FILEOP_TRUNCATE;
		record->argument = regs->si;
		break;
	case CALL_FALLOCATE:
		record->op = FILEOP_FALLOCATE;
		record->argument = regs->dx;
		record->length = regs->r10;
		record->flags |= (__u32)regs->si << 16;
		break;
	case CALL_FADVISE:
		record->op = FILEOP_FADVISE;
		record->argument = regs->si;
		record->length = regs->dx;
		record->flags |= (__u32)regs->r10 << 16;
		break;
	}
	submit_event(record);
}

static __always_inline void send_open(struct pt_regs *regs, struct task_struct *task, struct task_state *state,
				      __s64 result, __u64 now_ns)
{
	__u64 open_flags = 0, mode = 0;
	switch (state->call) {
	case CALL_OPEN:
		open_flags = regs->si;
		mode = regs->dx;
		break;
	case CALL_CREAT:
		open_flags = OPEN_CREATE | OPEN_TRUNCATE;
		mode = regs->si;
		break;
	case CALL_OPENAT:
		open_flags = regs->dx;
		mode = regs->r10;
		break;
	case CALL_OPENAT2: {
		__u64 how[2] = {}; /* struct open_how: flags, mode */
		bpf_probe_read_user(how, sizeof(how), (const void *)regs->dx);
		open_flags = how[0];
		mode = how[1];
		break;
	}
	}
	__u32 flags = 0;
	state->file = 0;
	if (result >= 0) {
		struct file *file = file_of_descriptor(task, result);
		if (!file)
			return;
		/* Directories are opened to be synced (SQLite does so after each unlink) and to be listed. */
		state->file = identify_file(file, true, state->start_ns);
		if (!state->file)
			return;
		if (BPF_CORE_READ(file, f_mode) & FMODE_CREATED)
			flags |= IO_CREATED;
		if ((BPF_CORE_READ(file, f_inode, i_mode) & MODE_TYPE_MASK) == MODE_DIRECTORY)
			flags |= IO_DIRECTORY;
	}
	if (open_flags & OPEN_TRUNCATE)
		flags |= IO_TRUNCATED;
	state->descriptor_flags = open_flags;
	struct fileop_record *record = reserve_fileop(task, state, result < 0 ? result : 0, now_ns);
	if (!record)
		return;
	record->op = FILEOP_OPEN;
	record->flags |= flags;
	record->argument = result < 0 ? 0 : result;
	record->length = open_flags & OPEN_CREATE ? mode : 0;
	submit_event(record);
}

/* A path argument, and where it starts if it may be relative. The kernel has just read it, so it is resident. */
static __always_inline void send_argument(struct task_struct *task, int directory, const char *text,
					  __u8 directory_role, __u8 role, __u64 now_ns)
{
	if (directory == AT_FDCWD) {
		struct fs_struct *fs = BPF_CORE_READ(task, fs);
		send_path(&fs->pwd, directory_role, 0, now_ns);
	} else {
		struct file *file = file_of_descriptor(task, directory);
		if (file)
			send_path(&file->f_path, directory_role, 0, now_ns);
	}
	struct ring_name *name = reserve_event(sizeof(struct ring_name), RECORD_FILEOP, now_ns);
	if (!name)
		return;
	long bytes = bpf_probe_read_user_str(name->text, NAME_BYTES_MAX, text);
	name->kind = RING_NAME;
	name->role = role;
	name->start = 0;
	name->bytes = bytes > 0 ? bytes - 1 : 0;
	name->time_ns = now_ns;
	name->file = 0;
	name->thread = task->pid;
	submit_event(name);
}

static __always_inline void send_name_operation(struct pt_regs *regs, struct task_struct *task,
						struct task_state *state, __s64 result, __u64 now_ns)
{
	int directory = AT_FDCWD, new_directory = AT_FDCWD;
	const char *text = NULL, *new_text = NULL;
	switch (state->call) {
	case CALL_UNLINK:
		text = (const char *)regs->di;
		break;
	case CALL_UNLINKAT:
		directory = regs->di;
		text = (const char *)regs->si;
		break;
	case CALL_RENAME:
		text = (const char *)regs->di;
		new_text = (const char *)regs->si;
		break;
	case CALL_RENAMEAT:
	case CALL_RENAMEAT2:
		directory = regs->di;
		text = (const char *)regs->si;
		new_directory = regs->dx;
		new_text = (const char *)regs->r10;
		break;
	}
	send_argument(task, directory, text, NAME_DIRECTORY, NAME_ARGUMENT, now_ns);
	if (new_text)
		send_argument(task, new_directory, new_text, NAME_NEW_DIRECTORY, NAME_NEW_ARGUMENT, now_ns);
	state->descriptor_flags = 0;
	struct fileop_record *record = reserve_fileop(task, state, result, now_ns);
	if (!record)
		return;
	record->op = new_text ? FILEOP_RENAME : FILEOP_UNLINK;
	submit_event(record);
}

SEC("tp_btf/sys_exit")
int BPF_PROG(sys_exit, struct pt_regs *regs, long result)
{
	unsigned long number = regs->orig_ax;
	if (number >= SYSCALL_NUMBERS_MAX || call_of_syscall[number] == CALL_NONE)
		return 0;
	struct task_struct *task = bpf_get_current_task_btf();
	struct task_state *state = bpf_task_storage_get(&tasks, task, NULL, 0);
	if (!state || state->call == CALL_NONE || state->call != call_of_syscall[number])
		return 0;
	/* Read before the end is taken, so that whoever moved it before overlaps this call in time. */
	__s64 after = uses_position(state, state->call) ? position_after(state) : 0;
	__u64 now_ns = bpf_ktime_get_ns();
	if (result < RESULT_RESTART_FIRST || result > RESULT_RESTART_LAST) {
		if (state->call <= CALL_DATA_LAST)
			send_io(regs, task, state, after, result, now_ns);
		else if (state->call <= CALL_DESCRIPTOR_LAST)
			send_descriptor_operation(regs, task, state, result, now_ns);
		else if (state->call <= CALL_OPEN_LAST)
			send_open(regs, task, state, result, now_ns);
		else if (state->call != CALL_UNRECORDED)
			send_name_operation(regs, task, state, result, now_ns);
	}
	if (state->call == CALL_UNRECORDED && result > 0)
		count_skip(SKIP_UNRECORDED_CALL);
	state->call = CALL_NONE;
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 OR BSD-2-Clause */
/*
 * A struct io_kiocb that the kernel has just made from a submission queue entry -> what its record will say.
 *
 * What an entry asks for stands in a structure of its operation that overlays the struct io_kiocb. Files are assigned only
 * when the request is issued (since 5.18); here the descriptor is looked up in advance, and at the end compared.
 */
#ifndef FLEXTRACE_IO_URING_REQUEST_BPF_H
#define FLEXTRACE_IO_URING_REQUEST_BPF_H

#include "async_record.bpf.h"

/* include/uapi/linux/io_uring.h; never renumbered. */
enum {
	URING_READV = 1,
	URING_WRITEV = 2,
	URING_FSYNC = 3,
	URING_READ_FIXED = 4,
	URING_WRITE_FIXED = 5,
	URING_SYNC_FILE_RANGE = 8,
	URING_FALLOCATE = 17,
	URING_OPENAT = 18,
	URING_CLOSE = 19,
	URING_READ = 22,
	URING_WRITE = 23,
	URING_FADVISE = 24,
	URING_OPENAT2 = 28,
	URING_SPLICE = 30,
	URING_RENAMEAT = 35,
	URING_UNLINKAT = 36,
	URING_MKDIRAT = 37,
	URING_SYMLINKAT = 38,
	URING_LINKAT = 39,
	URING_FTRUNCATE = 55,
	URING_READV_FIXED = 60,
	URING_WRITEV_FIXED = 61,

	/* Flags of an entry, which are the lowest bits of the flags of its request. */
	ENTRY_FIXED_FILE = 1 << 0,
	ENTRY_DRAIN = 1 << 1,
	ENTRY_LINK = 1 << 2,
	ENTRY_HARDLINK = 1 << 3,
	ENTRY_SUCCESS_IS_SILENT = 1 << 6,

	RING_POLLS_DEVICE = 1 << 0, /* IORING_SETUP_IOPOLL */
	RING_HAS_THREAD = 1 << 1, /* IORING_SETUP_SQPOLL */
	FSYNC_DATA_ONLY = 1 << 0, /* IORING_FSYNC_DATASYNC */
	REGISTERED_FILES_MAX = 1 << 20, /* IORING_MAX_FIXED_FILES */
	FIXED_FILE_POINTER_FLAGS = 7,
	/* Descriptor of an OPEN or CLOSE of a registered file, which has none. */
	DESCRIPTOR_NONE = 0xffffffff,
};

#define SPLICE_SOURCE_IS_REGISTERED (1u << 31) /* SPLICE_F_FD_IN_FIXED */

/* Names are copied when the request is made: at its end the kernel has dropped its copy, and the program may have too. */
struct request_names {
	char text[NAME_BYTES_MAX];
	char new_text[NAME_BYTES_MAX];
	__u8 has_text;
	__u8 has_new_text;
};

enum { REQUESTS_WITH_NAMES_MAX = 1 << 12 };

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, REQUESTS_WITH_NAMES_MAX);
	__type(key, __u64);
	__type(value, struct request_names);
} request_names __weak SEC(".maps");

/* Too large for the stack. Programs at tracepoints cannot be interrupted by each other for long enough to matter: they
 * run with preemption off, and no interrupt handler submits requests. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct request_names);
} names_scratch __weak SEC(".maps");

static __always_inline struct file *registered_file(struct io_ring_ctx *ring, __u32 index)
{
	unsigned long pointer = 0;
	if (index >= REGISTERED_FILES_MAX)
		return NULL;
	if (bpf_core_field_exists(ring->file_table.files)) {
		if (index >= BPF_CORE_READ(ring, nr_user_files))
			return NULL;
		struct io_fixed_file *slot = BPF_CORE_READ(ring, file_table.files) + index;
		pointer = BPF_CORE_READ(slot, file_ptr);
	} else {
		if (index >= BPF_CORE_READ(ring, file_table.data.nr))
			return NULL;
		struct io_rsrc_node **slot = BPF_CORE_READ(ring, file_table.data.nodes) + index;
		struct io_rsrc_node *node = NULL;
		bpf_probe_read_kernel(&node, sizeof(node), slot);
		if (node)
			pointer = BPF_CORE_READ(node, file_ptr);
	}
	return (struct file *)(pointer & ~(unsigned long)FIXED_FILE_POINTER_FLAGS);
}

/*
 * The address of the file that a descriptor of the program is, which the ring's threads share. Verified once, by itself
 * (file_identity.bpf.h): the verifier of 6.18 looks through all types of the kernel for each pointer that is read off a task.
 */
__weak __u64 file_of_program(__u32 descriptor)
{
	return (__u64)file_of_descriptor(bpf_get_current_task_btf(), descriptor);
}

static __always_inline struct file *file_of_request(struct io_ring_ctx *ring, bool registered, __u32 descriptor)
{
	return registered ? registered_file(ring, descriptor) : (struct file *)file_of_program(descriptor);
}

static __always_inline bool describe_data(struct io_kiocb *request, const struct io_ring_ctx *ring, __u8 opcode,
					  struct async_operation *operation)
{
	struct io_rw *data = (struct io_rw *)request;
	bool vectored = false;
	switch (opcode) {
	case URING_READV_FIXED:
	case URING_WRITEV_FIXED:
		operation->flags |= IO_FIXED_BUFFER;
		vectored = true;
		break;
	case URING_READV:
	case URING_WRITEV:
		vectored = true;
		break;
	case URING_READ_FIXED:
	case URING_WRITE_FIXED:
		operation->flags |= IO_FIXED_BUFFER;
		break;
	case URING_READ:
	case URING_WRITE:
		break;
	default:
		return false;
	}
	bool reads = opcode == URING_READ || opcode == URING_READV || opcode == URING_READ_FIXED ||
		     opcode == URING_READV_FIXED;
	operation->kind = RECORD_IO;
	operation->op = reads ? IO_READ : IO_WRITE;
	operation->position = BPF_CORE_READ(data, kiocb.ki_pos);
	__u64 address = BPF_CORE_READ(data, addr);
	__u32 length = BPF_CORE_READ(data, len);
	operation->asked_bytes = vectored ? vector_bytes(address, length) : length;
	__u32 rwf = BPF_CORE_READ(data, flags);
	operation->flags |= call_io_flags(rwf) | (vectored ? IO_VECTORED : 0) |
			    (operation->position == POSITION_OF_KERNEL ? 0 : IO_POSITIONED);
	operation->appends = !reads && (rwf & RWF_APPEND);
	operation->keeps_place = !!(rwf & RWF_NOAPPEND);
	if (ring->flags & RING_POLLS_DEVICE)
		operation->flags |= IO_HIPRI;
	return true;
}

/* Operations on a file that is open. */
static __always_inline bool describe_file_operation(struct io_kiocb *request, __u8 opcode,
						    struct async_operation *operation)
{
	struct io_sync *sync = (struct io_sync *)request;
	operation->kind = RECORD_FILEOP;
	switch (opcode) {
	case URING_FSYNC:
		operation->op = BPF_CORE_READ(sync, flags) & FSYNC_DATA_ONLY ? FILEOP_FDATASYNC : FILEOP_FSYNC;
		return true;
	case URING_SYNC_FILE_RANGE:
		operation->op = FILEOP_SYNC_FILE_RANGE;
		operation->argument = BPF_CORE_READ(sync, off);
		operation->length = BPF_CORE_READ(sync, len);
		operation->flags |= (__u32)BPF_CORE_READ(sync, flags) << 16;
		return true;
	case URING_FALLOCATE:
		operation->op = FILEOP_FALLOCATE;
		operation->argument = BPF_CORE_READ(sync, off);
		operation->length = BPF_CORE_READ(sync, len);
		operation->flags |= (__u32)BPF_CORE_READ(sync, mode) << 16;
		return true;
	case URING_FADVISE: {
		struct io_fadvise *advice = (struct io_fadvise *)request;
		__u64 length = BPF_CORE_READ(advice, len);
		operation->op = FILEOP_FADVISE;
		operation->argument = BPF_CORE_READ(advice, offset);
		operation->length = bpf_core_field_size(advice->len) == sizeof(__u32) ? (__u32)length : length;
		operation->flags |= BPF_CORE_READ(advice, advice) << 16;
		return true;
	}
	case URING_FTRUNCATE:
		if (!bpf_core_type_exists(struct io_ftrunc)) /* before 6.9 */
			return false;
		operation->op = FILEOP_TRUNCATE;
		operation->argument = BPF_CORE_READ((struct io_ftrunc *)request, len);
		return true;
	default:
		return false;
	}
}

static __always_inline __u8 copy_name(char *text, struct filename *name)
{
	return bpf_probe_read_kernel_str(text, NAME_BYTES_MAX, BPF_CORE_READ(name, name)) > 0;
}

/* Where the names of a request stand. */
struct names_of_request {
	struct filename *name, *new_name;
	int directory, new_directory;
};

/* Operations on names. */
static __always_inline bool describe_name_operation(struct io_kiocb *request, __u8 opcode,
						    struct async_operation *operation, struct names_of_request *names)
{
	struct io_rename *rename = (struct io_rename *)request;
	struct io_link *link = (struct io_link *)request;
	struct io_unlink *unlink = (struct io_unlink *)request;
	struct io_mkdir *mkdir = (struct io_mkdir *)request;
	operation->kind = RECORD_FILEOP;
	switch (opcode) {
	case URING_RENAMEAT:
		operation->op = FILEOP_RENAME;
		operation->length = (__u32)BPF_CORE_READ(rename, flags);
		names->name = BPF_CORE_READ(rename, oldpath);
		names->directory = BPF_CORE_READ(rename, old_dfd);
		names->new_name = BPF_CORE_READ(rename, newpath);
		names->new_directory = BPF_CORE_READ(rename, new_dfd);
		return true;
	case URING_LINKAT:
		operation->op = FILEOP_LINK;
		names->name = BPF_CORE_READ(link, oldpath);
		names->directory = BPF_CORE_READ(link, old_dfd);
		names->new_name = BPF_CORE_READ(link, newpath);
		names->new_directory = BPF_CORE_READ(link, new_dfd);
		return true;
	case URING_SYMLINKAT:
		operation->op = FILEOP_SYMLINK;
		names->new_name = BPF_CORE_READ(link, newpath);
		names->new_directory = BPF_CORE_READ(link, new_dfd);
		return true;
	case URING_UNLINKAT:
		operation->op = BPF_CORE_READ(unlink, flags) & AT_REMOVEDIR ? FILEOP_RMDIR : FILEOP_UNLINK;
		names->name = BPF_CORE_READ(unlink, filename);
		names->directory = BPF_CORE_READ(unlink, dfd);
		return true;
	case URING_MKDIRAT:
		operation->op = FILEOP_MKDIR;
		operation->length = BPF_CORE_READ(mkdir, mode);
		names->new_name = BPF_CORE_READ(mkdir, filename);
		names->new_directory = BPF_CORE_READ(mkdir, dfd);
		return true;
	default:
		return false;
	}
}

/* false if there is no room for them: the operation is lost, and counted so. */
static __always_inline bool keep_names(struct async_operation *operation, __u64 request,
				       const struct names_of_request *names, __u64 now_ns)
{
	__u32 zero = 0;
	struct request_names *scratch = bpf_map_lookup_elem(&names_scratch, &zero);
	if (!scratch)
		return false;
	operation->directory = names->directory;
	operation->new_directory = names->new_directory;
	scratch->has_text = names->name ? copy_name(scratch->text, names->name) : 0;
	scratch->has_new_text = names->new_name ? copy_name(scratch->new_text, names->new_name) : 0;
	if (!bpf_map_update_elem(&request_names, &request, scratch, BPF_ANY))
		return true;
	count_loss(RECORD_FILEOP, now_ns);
	return false;
}

/* The file that is opened is known at the end only, the one that is closed only now. */
static __always_inline bool describe_open(struct io_kiocb *request, struct async_operation *operation)
{
	struct io_open *open = (struct io_open *)request;
	operation->kind = RECORD_FILEOP;
	operation->op = FILEOP_OPEN;
	__u64 flags = BPF_CORE_READ(open, how.flags);
	operation->descriptor_flags = flags;
	operation->flags |= flags & OPEN_TRUNCATE ? IO_TRUNCATED : 0;
	operation->length = flags & (OPEN_CREATE | OPEN_TMPFILE) ? BPF_CORE_READ(open, how.mode) : 0;
	operation->argument = BPF_CORE_READ(open, file_slot) ? DESCRIPTOR_NONE : 0;
	return true;
}

/* The file that a close is about, while it is open; if it is not yet, somebody may be about to open it. */
static __always_inline bool find_closed(struct io_kiocb *request, struct async_operation *operation)
{
	struct io_close *close = (struct io_close *)request;
	struct io_ring_ctx *ring = BPF_CORE_READ(request, ctx);
	__u32 slot = BPF_CORE_READ(close, file_slot);
	__u32 descriptor = BPF_CORE_READ(close, fd);
	struct file *file = file_of_request(ring, slot, slot ? slot - 1 : descriptor);
	operation->argument = slot ? DESCRIPTOR_NONE : descriptor;
	return !file || set_file(operation, file, descriptor);
}

#endif /* FLEXTRACE_IO_URING_REQUEST_BPF_H */

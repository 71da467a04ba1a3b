/* SPDX-License-Identifier: Apache-2.0 OR BSD-2-Clause */
/*
 * Turns a struct file or inode into a file id of the trace; at first sight it also sends the FILE record and the path.
 */
#ifndef FLEXTRACE_FILE_IDENTITY_BPF_H
#define FLEXTRACE_FILE_IDENTITY_BPF_H

#include "maps.bpf.h"

/*
 * Identity that survives rename and inode reuse; a block device has its own number as device and inode 0. The device is what
 * stat(2) says: subvolumes of a btrfs, such as snapshots, have files of the same numbers.
 */
struct file_key {
	__u64 inode;
	__u32 device;
	__u32 generation;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 20); /* unless the recorder sets another number before load */
	__type(key, struct file_key);
	__type(value, __u32);
} file_ids __weak SEC(".maps");

__u32 file_id_last __weak = 0;

/* Files whose FILE record found no room and has not been sent since: at the end of recording they count as lost. */
__s64 files_unsent __weak = 0;

/* How often an id was taken back or not sent: what threads know of struct files (known_file.bpf.h) is not sure then. */
__u32 ids_forgotten __weak = 0;

/*
 * Filters of the user's, filled by the recorder before load. A file is judged once, at first sight: a file that is renamed
 * into the prefix later stays out.
 */
const volatile char filter_path_prefix[FILTER_PATH_BYTES_MAX] __weak = {};
const volatile __u32 filter_path_prefix_bytes __weak = 0;
const volatile __u32 filter_device __weak = 0; /* of block requests, 0 = all */
const volatile __u32 filter_file_devices[FILTER_DEVICES_MAX] __weak = {}; /* on that device, up to the first 0 */

/*
 * A field of a structure at a kernel address that may be anything. Where an object asks for it (FLEXTRACE_DIRECT_READS)
 * and the kernel has it (since 6.2), by a plain load instead of a call: it is what a call costs on the hot path. The linker
 * of libbpf 1.1 takes a kernel function from one object only.
 */
#ifdef FLEXTRACE_DIRECT_READS
const volatile bool has_rdonly_cast = false; /* set by the recorder */
extern void *bpf_rdonly_cast(void *object, __u32 type) __ksym __weak;

#define typed_pointer(pointer) \
	((typeof(pointer))bpf_rdonly_cast((void *)(pointer), bpf_core_type_id_kernel(typeof(*(pointer)))))
#define read_field(pointer, field) (has_rdonly_cast ? typed_pointer(pointer)->field : BPF_CORE_READ(pointer, field))
#else
#define read_field(pointer, field) BPF_CORE_READ(pointer, field)
#endif

enum {
	FILE_UNSENT = 0x80000000, /* beside a file id: its FILE record found no room, and is sent at the next use */
	FILE_FILTERED = 0x7fffffff, /* instead of a file id: left out by a filter */
	FILE_BEYOND = 0x7ffffffe, /* the same: there was no room for it; what is done with it counts as lost */
	IDENTIFY_DIRECTORIES = 1 << 0, /* directories are files, too */
	IDENTIFY_OPENED = 1 << 1, /* by the end of an open, which may have made the file in this trace */
	MODE_TYPE_MASK = 0170000,
	MODE_DIRECTORY = 0040000,
	MODE_BLOCK_DEVICE = 0060000,
	MODE_REGULAR = 0100000,
	FMODE_CREATED = 1 << 20, /* the open that made this struct file created the inode (include/linux/fs.h) */
	TMPFS_MAGIC = 0x01021994,
	BTRFS_MAGIC = 0x9123683e, /* BTRFS_SUPER_MAGIC */
	OVERLAY_MAGIC = 0x794c7630, /* OVERLAYFS_SUPER_MAGIC */
	SB_KERNMOUNT = 1 << 22, /* mounted by the kernel for itself: memfd, System V shared memory, pipes, sockets */
	PAGE_BYTES = 4096,
	PATH_STEPS_MAX = NAME_BYTES_MAX, /* components and mounts: no path has more of the former */
};

/* MODE_* */
static __always_inline __u16 mode_of(const struct inode *inode)
{
	return BPF_CORE_READ(inode, i_mode) & MODE_TYPE_MASK;
}

/* Kernel file systems whose "regular files" are no data on any device: s_magic values of include/uapi/linux/magic.h. */
static __always_inline bool is_pseudo_filesystem(unsigned long magic)
{
	switch (magic) {
	case 0x9fa0: /* proc */
	case 0x62656572: /* sysfs */
	case 0x64626720: /* debugfs */
	case 0x74726163: /* tracefs */
	case 0x27e0eb: /* cgroup */
	case 0x63677270: /* cgroup2 */
	case 0x73636673: /* securityfs */
	case 0x62656570: /* configfs */
	case 0xcafe4a11: /* bpf */
	case 0xde5e81e4: /* efivarfs */
	case 0xf97cff8c: /* selinux */
	case 0x65735543: /* fusectl */
	case 0x19800202: /* mqueue */
	case 0x09041934: /* anonymous inodes */
	case 0x50495045: /* pipefs */
	case 0x534f434b: /* sockfs */
		return true;
	default:
		return false;
	}
}

/* Records that were lost for their file, and not for want of room in a ring. */
__u64 lost_beyond __weak = 0;

static __always_inline void count_beyond(__u32 kind, __u64 now_ns)
{
	count_loss(kind, now_ns);
	__sync_fetch_and_add(&lost_beyond, 1);
}

/* Space for the record of an operation on a file; NULL after counting the loss. */
#define reserve_event_of(file, event_bytes, record_kind, now_ns)                         \
	({                                                                               \
		void *event_of_file = NULL;                                              \
		if ((file) == FILE_BEYOND)                                               \
			count_beyond(record_kind, now_ns);                               \
		else                                                                     \
			event_of_file = reserve_event(event_bytes, record_kind, now_ns); \
		event_of_file;                                                           \
	})

static __always_inline struct file *file_of_descriptor(struct task_struct *task, __u32 descriptor)
{
	struct files_struct *files = task->files;
	struct fdtable *table = files ? files->fdt : NULL;
	if (!table || descriptor >= table->max_fds)
		return NULL;
	struct file **slot = &table->fd[descriptor];
#ifdef FLEXTRACE_DIRECT_READS
	if (has_rdonly_cast) /* a kiocb begins with a pointer to a file, as the slot does */
		return typed_pointer((struct kiocb *)slot)->ki_filp;
#endif
	struct file *file = NULL;
	bpf_probe_read_kernel(&file, sizeof(file), slot);
	return file;
}

/*
 * The functions below that are not static are verified once, by themselves, instead of in each of their callers. Such a
 * function takes kernel pointers as numbers, which the verifier has to be shown: what is read from memory is one.
 */
static __always_inline __u64 number_of(const void *pointer)
{
	__u64 number = 0;
	bpf_probe_read_kernel(&number, sizeof(number), &pointer);
	return number;
}

/* The way from a dentry to the root that a task sees (chroot, containers), over mount points. */
struct path_walk {
	struct ring_name *name;
	struct dentry *dentry;
	struct mount *mount;
	struct dentry *root;
	struct vfsmount *root_mount;
	__u32 start; /* of the text so far, which is written from the end of the buffer to its front */
};

/* 1 at the root, or when the buffer is full. By bpf_loop: unrolled, this was most of what the verifier had to look at. */
static long climb(__u32 step, struct path_walk *walk)
{
	struct dentry *dentry = walk->dentry;
	struct mount *mount = walk->mount;
	struct dentry *parent = BPF_CORE_READ(dentry, d_parent);
	if (dentry == walk->root && &mount->mnt == walk->root_mount)
		return 1;
	if (dentry == BPF_CORE_READ(mount, mnt.mnt_root) || dentry == parent) {
		struct mount *mount_parent = BPF_CORE_READ(mount, mnt_parent);
		if (mount_parent == mount || !mount_parent)
			return 1;
		walk->dentry = BPF_CORE_READ(mount, mnt_mountpoint);
		walk->mount = mount_parent;
		return 0;
	}
	__u32 start = walk->start;
	__u32 component_bytes = BPF_CORE_READ(dentry, d_name.len) & (NAME_COMPONENT_MAX - 1);
	if (start < component_bytes + 1)
		return 1;
	start -= component_bytes + 1;
	/* The masks change nothing; they prove the bounds to the verifier. */
	start &= NAME_BYTES_MAX - 1;
	walk->name->text[start] = '/';
	bpf_probe_read_kernel(&walk->name->text[start + 1], component_bytes, BPF_CORE_READ(dentry, d_name.name));
	walk->start = start;
	walk->dentry = parent;
	return 0;
}

/* Writes the path of a dentry as a task sees it. */
__weak int write_path(struct ring_name *name, __u64 path_pointer, __u64 viewer_pointer)
{
	const struct path *path = (const struct path *)path_pointer;
	struct task_struct *viewer = (struct task_struct *)viewer_pointer;
	if (!name)
		return 0;
	struct fs_struct *fs = BPF_CORE_READ(viewer, fs);
	struct vfsmount *vfsmount = BPF_CORE_READ(path, mnt);
	struct path_walk walk = {
		.name = name,
		.dentry = BPF_CORE_READ(path, dentry),
		.mount = (void *)vfsmount - bpf_core_field_offset(struct mount, mnt),
		.root = BPF_CORE_READ(fs, root.dentry),
		.root_mount = BPF_CORE_READ(fs, root.mnt),
		.start = NAME_BYTES_MAX,
	};
	bpf_loop(PATH_STEPS_MAX, climb, &walk, 0);
	name->start = walk.start;
	name->bytes = NAME_BYTES_MAX - walk.start;
	return 0;
}

static __always_inline void finish_name(struct ring_name *name, __u8 role, __u32 file, struct task_struct *viewer,
					__u64 now_ns)
{
	name->kind = RING_NAME;
	name->role = role;
	name->time_ns = now_ns;
	name->file = file;
	name->thread = BPF_CORE_READ(viewer, pid);
	name->process = BPF_CORE_READ(viewer, tgid);
	name->other_root = root_of(viewer) != recorder_root;
}

/* Sends the path of a directory or file that the task that runs has named. false if there is no room for it. */
static __always_inline bool send_path(const struct path *path, __u8 role, __u64 now_ns)
{
	struct ring_name *name = try_reserve_event(sizeof(struct ring_name));
	if (!name)
		return false;
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	write_path(name, number_of(path), (__u64)task);
	finish_name(name, role, 0, task, now_ns);
	submit_for_lookup(name);
	return true;
}

/* Whether the path lies below the prefix of the user's, or is it. */
static __always_inline bool has_wanted_prefix(const struct ring_name *name)
{
	__u32 bytes = filter_path_prefix_bytes;
	__u32 start = name->start;
	if (!bytes)
		return true;
	if (name->bytes < bytes)
		return false;
	for (__u32 i = 0; i < FILTER_PATH_BYTES_MAX && i < bytes; i++)
		if (name->text[(start + i) & (NAME_BYTES_MAX - 1)] != filter_path_prefix[i])
			return false;
	/* /data does not mean /database; a prefix that ends in a slash does not get here (the recorder cuts it). */
	return name->bytes == bytes || name->text[(start + bytes) & (NAME_BYTES_MAX - 1)] == '/';
}

/*
 * The same of a file that nobody knows of yet. Where there is no room to write its path in, that comes out when its record is
 * sent.
 */
static __always_inline bool has_wanted_path(struct file *file, struct task_struct *viewer)
{
	struct ring_name *name = filter_path_prefix_bytes ? try_reserve_event(sizeof(struct ring_name)) : NULL;
	if (!name)
		return true;
	write_path(name, (__u64)&file->f_path, (__u64)viewer);
	bool wanted = has_wanted_prefix(name);
	bpf_ringbuf_discard(name, BPF_RB_NO_WAKEUP);
	return wanted;
}

/* Whether the data is on no device: a direct read of it (tmpfs takes O_DIRECT since 6.6) misses no cache. */
static __always_inline bool is_in_memory(const struct inode *data)
{
	return BPF_CORE_READ(data, i_sb, s_magic) == TMPFS_MAGIC;
}

/* Whether the open that made this struct file made the file, too. */
static __always_inline bool was_created(const struct file *file)
{
	return BPF_CORE_READ(file, f_mode) & FMODE_CREATED || BPF_CORE_READ(file, f_flags) & OPEN_TMPFILE;
}

/*
 * The FILE record and its path, both or neither: space for both is taken first. Returns what the file is known by from now
 * on: its id, beside FILE_UNSENT if there was no space, or FILE_FILTERED.
 */
static __always_inline __u32 send_file(struct file *file, struct inode *inode, const struct file_key *key, __u32 id,
				       __u32 how, struct task_struct *viewer, __u64 now_ns)
{
	struct file_record *record = try_reserve_event(sizeof(struct file_record));
	if (!record)
		return id | FILE_UNSENT;
	struct ring_name *name = try_reserve_event(sizeof(struct ring_name));
	if (!name) {
		bpf_ringbuf_discard(record, BPF_RB_NO_WAKEUP);
		return id | FILE_UNSENT;
	}
	write_path(name, (__u64)&file->f_path, (__u64)viewer);
	if (!has_wanted_prefix(name)) {
		bpf_ringbuf_discard(name, BPF_RB_NO_WAKEUP);
		bpf_ringbuf_discard(record, BPF_RB_NO_WAKEUP);
		return FILE_FILTERED;
	}
	finish_name(name, NAME_OF_FILE, id, viewer, now_ns);
	__builtin_memset(record, 0, sizeof(*record));
	/* Of a block device, data and size belong to the inode of the device, not to that of the node in /dev. */
	struct address_space *mapping = BPF_CORE_READ(file, f_mapping);
	__u64 size_bytes = BPF_CORE_READ(mapping, host, i_size);
	__u64 resident_bytes = BPF_CORE_READ(mapping, nrpages) * PAGE_BYTES;

	__u16 mode = mode_of(inode);
	record->kind = RECORD_FILE;
	record->type = mode == MODE_BLOCK_DEVICE ? FILE_TYPE_BLOCK_DEVICE
		       : mode == MODE_DIRECTORY	 ? FILE_TYPE_DIRECTORY
						 : FILE_TYPE_REGULAR;
	record->flags = how & IDENTIFY_OPENED && was_created(file) ? FILE_CREATED : 0;
	record->time_ns = now_ns;
	record->file = id;
	record->device = key->device;
	record->inode = key->inode;
	record->generation = key->generation;
	record->filesystem_magic = BPF_CORE_READ(inode, i_sb, s_magic);
	record->size_bytes = size_bytes;
	record->resident_bytes = resident_bytes < size_bytes ? resident_bytes : size_bytes;
	/* The recorder takes what lies in the ring up to the first event that is not submitted: never the record without its name. */
	submit_event(name);
	if (size_bytes)
		submit_for_lookup(record);
	else
		submit_event(record);
	return id;
}

/* What stat(2) says of an inode's device: of btrfs, the number of the subvolume. */
static __always_inline __u32 device_of_inode(const struct inode *inode, const struct super_block *super,
					     unsigned long magic)
{
	if (magic == BTRFS_MAGIC && bpf_core_field_exists(((struct btrfs_root *)NULL)->anon_dev)) {
		struct btrfs_inode *around = (void *)inode - bpf_core_field_offset(struct btrfs_inode, vfs_inode);
		return BPF_CORE_READ(around, root, anon_dev);
	}
	return BPF_CORE_READ(super, s_dev);
}

/* Of a regular file, block device or directory on a real file system. false for everything else. */
static __always_inline bool make_key(const struct inode *inode, __u16 mode, struct file_key *key)
{
	if (mode == MODE_BLOCK_DEVICE) {
		key->device = BPF_CORE_READ(inode, i_rdev);
		return true;
	}
	struct super_block *super = BPF_CORE_READ(inode, i_sb);
	unsigned long magic = BPF_CORE_READ(super, s_magic);
	if (BPF_CORE_READ(super, s_flags) & SB_KERNMOUNT || is_pseudo_filesystem(magic))
		return false;
	key->device = device_of_inode(inode, super, magic);
	key->inode = BPF_CORE_READ(inode, i_ino);
	key->generation = BPF_CORE_READ(inode, i_generation);
	return true;
}

/*
 * What was known under the key of a file that an open has just made is another file, which is gone. Where inodes have
 * generations the key tells them apart; those of overlays have none, and the number is given out again at once.
 */
static __always_inline void forget_namesake(const struct file *file)
{
	struct inode *inode = BPF_CORE_READ(file, f_inode);
	struct file_key key = {};
	if (!was_created(file) || !make_key(inode, MODE_REGULAR, &key) || key.generation)
		return;
	if (!bpf_map_delete_elem(&file_ids, &key))
		__sync_fetch_and_add(&ids_forgotten, 1);
}

/* The id of the file that an inode is, 0 if it was never seen or is left out. Sends and counts nothing. */
static __always_inline __u32 find_inode(const struct inode *inode)
{
	struct file_key key = {};
	__u16 mode = mode_of(inode);
	if ((mode != MODE_REGULAR && mode != MODE_BLOCK_DEVICE) || !make_key(inode, mode, &key))
		return 0;
	__u32 *known = bpf_map_lookup_elem(&file_ids, &key);
	__u32 id = known ? *known & ~FILE_UNSENT : 0;
	return id < FILE_BEYOND ? id : 0;
}

/*
 * Enters a second inode of a file that has an id: the one below an overlay's. Whether it is new. That there is no room for
 * it is counted here, as nothing else tells of its pages then. Up to 6.3 the upper half of what the kernel returns means
 * nothing.
 */
static __always_inline bool enter_second_inode(const struct file_key *key, const __u32 *id)
{
	int error = bpf_map_update_elem(&file_ids, key, id, BPF_NOEXIST);
	if (error && error != ENTRY_EXISTS)
		count_beyond(RECORD_FILE, bpf_ktime_get_ns());
	return !error;
}

/* Whether files are left out: an operation of which no file is known, such as an open that failed, is then left out, too. */
static __always_inline bool has_file_filter(void)
{
	return filter_device || filter_path_prefix_bytes;
}

/* Of a file system that is the device of its super block, which all subvolumes share. */
static __always_inline bool has_wanted_device(const struct inode *inode, __u16 mode)
{
	if (!filter_device)
		return true;
	__u32 device = mode == MODE_BLOCK_DEVICE ? BPF_CORE_READ(inode, i_rdev) : BPF_CORE_READ(inode, i_sb, s_dev);
	for (int i = 0; i < FILTER_DEVICES_MAX && filter_file_devices[i]; i++)
		if (filter_file_devices[i] == device)
			return true;
	return false;
}

/*
 * The id of a regular file or block device, or of a directory if those are wanted (how: IDENTIFY_*); 0 for everything else, for which it
 * counts a skip. A file for which the table has no room is FILE_BEYOND.
 */
__weak __u32 identify_file_of(__u64 file_pointer, __u32 how, __u64 viewer_pointer, __u64 now_ns)
{
	struct file *file = (struct file *)file_pointer;
	struct task_struct *viewer = (struct task_struct *)viewer_pointer;
	struct inode *inode = BPF_CORE_READ(file, f_inode);
	__u16 mode = mode_of(inode);
	struct file_key key = {};

	bool wanted = mode == MODE_REGULAR || mode == MODE_BLOCK_DEVICE ||
		      (how & IDENTIFY_DIRECTORIES && mode == MODE_DIRECTORY);
	if (!wanted || BPF_CORE_READ(file, f_flags) & OPEN_PATH) {
		count_skip(SKIP_NOT_A_FILE);
		return 0;
	}
	if (!make_key(inode, mode, &key)) {
		count_skip(SKIP_PSEUDO_FILE);
		return 0;
	}
	__u32 *known = bpf_map_lookup_elem(&file_ids, &key);
	bool is_new = false;
	if (!known) {
		__u32 fresh = FILE_FILTERED;
		if (has_wanted_device(inode, mode)) {
			__u32 next = __sync_fetch_and_add(&file_id_last, 1) + 1;
			/* Judged before it is entered: from then on other CPUs use the id. */
			fresh = has_wanted_path(file, viewer) ? next : FILE_FILTERED;
		}
		/* If another CPU was first, its id counts, and it sends the record. */
		is_new = !bpf_map_update_elem(&file_ids, &key, &fresh, BPF_NOEXIST);
		known = bpf_map_lookup_elem(&file_ids, &key);
	}
	if (!known)
		return FILE_BEYOND;
	/* Whoever takes the mark away sends what could not be sent before. */
	bool is_late = *known & FILE_UNSENT && __sync_fetch_and_and(known, ~FILE_UNSENT) & FILE_UNSENT;
	__u32 id = *known & ~FILE_UNSENT;
	if ((is_new || is_late) && id != FILE_FILTERED) {
		/* What is late was mostly for its open. */
		__u32 sent = send_file(file, inode, &key, id, is_late ? how | IDENTIFY_OPENED : how, viewer, now_ns);
		if (sent != id) {
			*known = sent;
			__sync_fetch_and_add(&ids_forgotten, 1);
		}
		if (is_new && sent & FILE_UNSENT)
			__sync_fetch_and_add(&files_unsent, 1);
		else if (is_late && !(sent & FILE_UNSENT))
			__sync_fetch_and_add(&files_unsent, -1);
		id = sent & ~FILE_UNSENT;
	}
	if (id == FILE_FILTERED) {
		count_skip(SKIP_FILTERED);
		return 0;
	}
	return id;
}

/* As the task that runs sees it. */
static __always_inline __u32 identify_file(struct file *file, __u32 how, __u64 now_ns)
{
	return identify_file_of(number_of(file), how, bpf_get_current_task(), now_ns);
}

#endif /* FLEXTRACE_FILE_IDENTITY_BPF_H */

/* SPDX-License-Identifier: Apache-2.0 OR BSD-2-Clause */
/*
 * Turns a struct file into a file id of the trace; at first sight it also sends the FILE record and the path.
 */
#ifndef FLEXTRACE_FILE_IDENTITY_BPF_H
#define FLEXTRACE_FILE_IDENTITY_BPF_H

#include "maps.bpf.h"

/* Identity that survives rename and inode reuse; a block device has its own number as device and inode 0. */
struct file_key {
	__u64 inode;
	__u32 device;
	__u32 generation;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, FILES_MAX);
	__type(key, struct file_key);
	__type(value, __u32);
} file_ids __weak SEC(".maps");

__u32 file_id_last __weak = 0;

enum {
	MODE_TYPE_MASK = 0170000,
	MODE_DIRECTORY = 0040000,
	MODE_BLOCK_DEVICE = 0060000,
	MODE_REGULAR = 0100000,
	FMODE_CREATED = 1 << 20, /* the open that made this struct file created the inode (include/linux/fs.h) */
	PAGE_BYTES = 4096,
	PATH_DEPTH_MAX = 40, /* components and mounts; a deeper path is cut at its front */
};

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

/*
 * Sends the path of a dentry as a ring_name, as the current task sees it (chroot, containers). Walks from the leaf to
 * the task's root, over mount points, and writes the text from the end of the buffer to its front.
 */
static __always_inline void send_path(const struct path *path, __u8 role, __u32 file, __u64 now_ns)
{
	struct ring_name *name = reserve_event(sizeof(struct ring_name), RECORD_FILE, now_ns);
	if (!name)
		return;
	struct dentry *dentry = BPF_CORE_READ(path, dentry);
	struct vfsmount *vfsmount = BPF_CORE_READ(path, mnt);
	struct mount *mount = (void *)vfsmount - bpf_core_field_offset(struct mount, mnt);
	struct fs_struct *fs = BPF_CORE_READ(bpf_get_current_task_btf(), fs);
	struct dentry *root = BPF_CORE_READ(fs, root.dentry);
	struct vfsmount *root_mount = BPF_CORE_READ(fs, root.mnt);
	__u32 start = NAME_BYTES_MAX;

	for (int i = 0; i < PATH_DEPTH_MAX; i++) {
		struct dentry *parent = BPF_CORE_READ(dentry, d_parent);
		if (dentry == root && &mount->mnt == root_mount)
			break;
		if (dentry == BPF_CORE_READ(mount, mnt.mnt_root) || dentry == parent) {
			struct mount *mount_parent = BPF_CORE_READ(mount, mnt_parent);
			if (mount_parent == mount || !mount_parent)
				break;
			dentry = BPF_CORE_READ(mount, mnt_mountpoint);
			mount = mount_parent;
			continue;
		}
		__u32 component_bytes = BPF_CORE_READ(dentry, d_name.len) & (NAME_COMPONENT_MAX - 1);
		if (start < component_bytes + 1)
			break;
		start -= component_bytes + 1;
		/* The masks change nothing; they prove the bounds to the verifier. */
		start &= NAME_BYTES_MAX - 1;
		name->text[start] = '/';
		bpf_probe_read_kernel(&name->text[start + 1], component_bytes, BPF_CORE_READ(dentry, d_name.name));
		dentry = parent;
	}
	name->kind = RING_NAME;
	name->role = role;
	name->start = start;
	name->bytes = NAME_BYTES_MAX - start;
	name->time_ns = now_ns;
	name->file = file;
	name->thread = (__u32)bpf_get_current_pid_tgid();
	submit_event(name);
}

static __always_inline void send_file(struct file *file, struct inode *inode, const struct file_key *key, __u32 id,
				      __u16 mode, __u64 now_ns)
{
	struct file_record *record = reserve_event(sizeof(struct file_record), RECORD_FILE, now_ns);
	if (!record)
		return;
	__builtin_memset(record, 0, sizeof(*record));
	/* Of a block device, data and size belong to the inode of the device, not to that of the node in /dev. */
	struct address_space *mapping = BPF_CORE_READ(file, f_mapping);
	__u64 size_bytes = BPF_CORE_READ(mapping, host, i_size);
	__u64 resident_bytes = BPF_CORE_READ(mapping, nrpages) * PAGE_BYTES;

	record->kind = RECORD_FILE;
	record->type = mode == MODE_BLOCK_DEVICE ? FILE_TYPE_BLOCK_DEVICE
		       : mode == MODE_DIRECTORY	 ? FILE_TYPE_DIRECTORY
						 : FILE_TYPE_REGULAR;
	record->flags = BPF_CORE_READ(file, f_mode) & FMODE_CREATED ? FILE_CREATED : 0;
	record->time_ns = now_ns;
	record->file = id;
	record->device = key->device;
	record->inode = key->inode;
	record->generation = key->generation;
	record->filesystem_magic = BPF_CORE_READ(inode, i_sb, s_magic);
	record->size_bytes = size_bytes;
	record->resident_bytes = resident_bytes < size_bytes ? resident_bytes : size_bytes;
	submit_event(record);
	send_path(&file->f_path, NAME_OF_FILE, id, now_ns);
}

/*
 * The id of a regular file or block device, or of a directory if those are wanted; 0 for everything else, for which it
 * counts a skip. A file that cannot be entered into the full table gets id 0 too, and is counted as a lost FILE.
 */
static __always_inline __u32 identify_file(struct file *file, bool directories, __u64 now_ns)
{
	struct inode *inode = BPF_CORE_READ(file, f_inode);
	__u16 mode = BPF_CORE_READ(inode, i_mode) & MODE_TYPE_MASK;
	struct file_key key = {};

	if (mode == MODE_BLOCK_DEVICE) {
		key.device = BPF_CORE_READ(inode, i_rdev);
	} else if (mode == MODE_REGULAR || (directories && mode == MODE_DIRECTORY)) {
		struct super_block *super = BPF_CORE_READ(inode, i_sb);
		if (is_pseudo_filesystem(BPF_CORE_READ(super, s_magic))) {
			count_skip(SKIP_PSEUDO_FILE);
			return 0;
		}
		key.device = BPF_CORE_READ(super, s_dev);
		key.inode = BPF_CORE_READ(inode, i_ino);
		key.generation = BPF_CORE_READ(inode, i_generation);
	} else {
		count_skip(SKIP_NOT_A_FILE);
		return 0;
	}

	__u32 *known = bpf_map_lookup_elem(&file_ids, &key);
	if (known)
		return *known;
	__u32 id = __sync_fetch_and_add(&file_id_last, 1) + 1;
	if (bpf_map_update_elem(&file_ids, &key, &id, BPF_NOEXIST)) {
		/* Another CPU was first (it also sends the record), or the table is full. */
		known = bpf_map_lookup_elem(&file_ids, &key);
		if (!known)
			count_loss(RECORD_FILE, now_ns);
		return known ? *known : 0;
	}
	send_file(file, inode, &key, id, mode, now_ns);
	return id;
}

#endif /* FLEXTRACE_FILE_IDENTITY_BPF_H */

// SPDX-License-Identifier: Apache-2.0
/*
 * Turns the path that a file had when it was first seen into the file, for what is looked up a little later.
 */
#include "seen_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <unistd.h>

#include "cleanup.h"
#include "topology.h"

enum { VIEW_BYTES = PATH_MAX + 64 };

/* Opening a file there asks a server, which may take forever, or be the very program that is recorded. */
static bool may_hang(uint32_t filesystem_magic)
{
	switch (filesystem_magic) {
	case NFS_SUPER_MAGIC:
	case SMB_SUPER_MAGIC:
	case CIFS_SUPER_MAGIC:
	case SMB2_SUPER_MAGIC:
	case V9FS_MAGIC:
	case CEPH_SUPER_MAGIC:
	case FUSE_SUPER_MAGIC:
	case AFS_SUPER_MAGIC:
		return true;
	default:
		return false;
	}
}

bool seen_file_can_be_asked(const struct file_record *record)
{
	return record->type == FILE_TYPE_REGULAR && !may_hang(record->filesystem_magic);
}

/*
 * Not its times, as stat(2) does: since Linux 6.13 whoever asks for them has the next write change them, and the next sync
 * write the inode, too (IO_CTIME_QUERIED). 0 or -1.
 */
static int ask(int directory, const char *path, int flags, struct statx *status)
{
	return statx(directory, path, flags, STATX_TYPE | STATX_INO | STATX_SIZE | STATX_BLOCKS, status);
}

/* Of btrfs the kernel side may know only the number of the super block, and stat says that of the subvolume. */
static bool is_the_file(const struct statx *now, const struct file_record *record)
{
	return S_ISREG(now->stx_mode) && now->stx_ino == record->inode &&
	       (record->filesystem_magic == BTRFS_SUPER_MAGIC ||
		device_number(now->stx_dev_major, now->stx_dev_minor) == record->device);
}

static void view_of(const struct seen_file *file, char view[static VIEW_BYTES])
{
	snprintf(view, VIEW_BYTES, "/proc/%d/root%s", file->viewer, file->path);
}

int seen_file_ask(const struct seen_file *file, struct statx *status)
{
	char view[VIEW_BYTES];
	view_of(file, view);
	if (!ask(AT_FDCWD, view, 0, status) && is_the_file(status, &file->record))
		return 0;
	return !ask(AT_FDCWD, file->path, 0, status) && is_the_file(status, &file->record) ? 0 : -ENOENT;
}

int seen_file_ask_open(int descriptor, struct statx *status)
{
	return ask(descriptor, "", AT_EMPTY_PATH, status) ? -errno : 0;
}

/*
 * Only the file itself: what is there instead by now, such as a pipe or a device, would notice that it is opened. Without
 * moving the access time, which is a write; only the owner and CAP_FOWNER may ask for that.
 */
static int open_path(const char *path, const struct file_record *record)
{
	int flags = O_RDONLY | O_NONBLOCK | O_CLOEXEC;
	char link[64];
	struct statx now;
	_cleanup_close_ int found = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (found < 0 || seen_file_ask_open(found, &now) || !is_the_file(&now, record))
		return -1;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", found);
	int descriptor = open(link, flags | O_NOATIME);
	return descriptor < 0 && errno == EPERM ? open(link, flags) : descriptor;
}

/* The process that has named the path may have ended; then only our own view is left. */
int seen_file_open(const struct seen_file *file)
{
	char view[VIEW_BYTES];
	view_of(file, view);
	int descriptor = open_path(view, &file->record);
	return descriptor >= 0 ? descriptor : open_path(file->path, &file->record);
}

// SPDX-License-Identifier: Apache-2.0
// Turns the name of a block device into a descriptor that a replay may use, or a refusal.
#include <blkid/blkid.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "replayer/engine/device_identity.h"
#include "replayer/engine/device_users.h"
#include "replayer/engine/message.h"
#include "replayer/engine/target_guard.h"

static void free_probe(blkid_probe *probe)
{
	if (*probe)
		blkid_free_probe(*probe);
}

static int open_exclusively(struct target *target, bool write)
{
	struct stat named, opened;

	/* Looked at first: opening a tape or a watchdog does something. */
	if (stat(target->path, &named) < 0) {
		int error = errno;

		complain("cannot use device %s: %s%s", target->path, strerror(error), way_remedy(error, target->path));
		return -error;
	}
	if (!S_ISBLK(named.st_mode)) {
		complain("%s is not a block device: give one, or --directory to replay in files", target->path);
		return -ENOTBLK;
	}
	target->descriptor = open(target->path, (write ? O_RDWR : O_RDONLY) | O_EXCL | O_CLOEXEC | O_NONBLOCK);
	if (target->descriptor < 0) {
		char user[DEVICE_USER_BYTES];
		int error = errno;

		if (error != EBUSY)
			complain("cannot open device %s%s: %s", target->path, write ? " for writing" : "",
				 strerror(error));
		else
			complain("%s is in use (%s): give a device that nobody uses", target->path,
				 device_user(named.st_rdev, user) ? user : "the kernel does not say by whom");
		return -error;
	}
	if (fstat(target->descriptor, &opened) < 0 || !S_ISBLK(opened.st_mode) || opened.st_rdev != named.st_rdev) {
		complain("%s became another file while it was opened: nothing was done", target->path);
		return -ESTALE;
	}
	target->device = opened.st_rdev;
	return 0;
}

static int measure(struct target *target)
{
	int block_bytes = 0;

	if (ioctl(target->descriptor, BLKGETSIZE64, &target->size_bytes) < 0 ||
	    ioctl(target->descriptor, BLKSSZGET, &block_bytes) < 0) {
		complain("cannot ask %s for its size: %s", target->path, strerror(errno));
		return -errno;
	}
	if (!target->size_bytes) {
		complain("%s has no medium (its size is 0)", target->path);
		return -ENOMEDIUM;
	}
	target->block_bytes = (uint32_t)block_bytes;
	return 0;
}

/* What wipefs would find: also a signature with a damaged checksum, and only the second copy of a partition table. */
static int refuse_signature(const struct target *target)
{
	__attribute__((cleanup(free_probe))) blkid_probe probe = blkid_new_probe();
	const char *type = NULL;

	if (!probe || blkid_probe_set_device(probe, target->descriptor, 0, 0)) {
		complain("cannot look for signatures on %s", target->path);
		return -EIO;
	}
	blkid_probe_enable_superblocks(probe, 1);
	blkid_probe_set_superblocks_flags(probe, BLKID_SUBLKS_TYPE | BLKID_SUBLKS_MAGIC | BLKID_SUBLKS_BADCSUM);
	blkid_probe_enable_partitions(probe, 1);
	blkid_probe_set_partitions_flags(probe, BLKID_PARTS_MAGIC | BLKID_PARTS_FORCE_GPT);
	int found = blkid_do_probe(probe);
	if (found == 1) /* nothing */
		return 0;
	if (found < 0) {
		complain("cannot look for signatures on %s: it could not be read", target->path);
		return -EIO;
	}
	if (blkid_probe_lookup_value(probe, "TYPE", &type, NULL) < 0 &&
	    blkid_probe_lookup_value(probe, "PTTYPE", &type, NULL) < 0)
		type = "an unknown kind";
	complain(
		"%s carries a signature (%s), so somebody's data may be on it: it is not written; if nobody needs them, run 'wipefs --all' on it",
		target->path, type);
	return -EEXIST;
}

static int refuse_unconfirmed(const struct target *target, const char *confirmation)
{
	char directory[64], identity[IDENTITY_BYTES];

	snprintf(directory, sizeof(directory), "/sys/dev/block/%u:%u", major(target->device), minor(target->device));
	const char *what = device_identity(directory, target->size_bytes, identity);

	if (!strcmp(confirmation, identity))
		return 0;
	complain("'%s' does not confirm that %s is to be overwritten: give --confirm with %s", confirmation,
		 target->path, what);
	return -EPERM;
}

static int check_users(const struct target *target)
{
	char user[DEVICE_USER_BYTES], directory[64];

	snprintf(directory, sizeof(directory), "/sys/dev/block/%u:%u", major(target->device), minor(target->device));
	if (access(directory, F_OK) < 0) {
		complain("cannot see who uses %s: there is no %s; replay where /sys is mounted", target->path,
			 directory);
		return -ENOENT;
	}
	if (!device_user(target->device, user))
		return 0;
	complain("%s is in use (%s): give a device that nobody uses", target->path, user);
	return -EBUSY;
}

static int check_writing(const struct target *target, const char *confirmation)
{
	int read_only = 0;

	if (ioctl(target->descriptor, BLKROGET, &read_only) == 0 && read_only) {
		complain("%s is read-only: leave --write out, or give another device", target->path);
		return -EROFS;
	}
	unsigned int partitions = device_partitions(target->device);
	if (partitions) {
		complain("%s has %u partitions: it is not written; give one of them, or another device", target->path,
			 partitions);
		return -EEXIST;
	}
	int error = refuse_signature(target);
	return error ? error : refuse_unconfirmed(target, confirmation);
}

int target_open(struct target *target, const char *path, bool write, const char *confirmation)
{
	*target = (struct target){.path = path, .descriptor = -1, .writable = write};
	int error = open_exclusively(target, write);

	if (!error)
		error = measure(target);
	if (!error)
		error = check_users(target);
	if (!error && write)
		error = check_writing(target, confirmation);
	if (error)
		target_close(target);
	return error;
}

int target_reopen(const struct target *target, int flags)
{
	char path[32];
	struct stat status;

	flags = (flags & ~(O_ACCMODE | O_NOFOLLOW | O_CREAT | O_TRUNC)) | (target->writable ? O_RDWR : O_RDONLY);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", target->descriptor);
	int descriptor = open(path, flags);
	if (descriptor < 0)
		return -errno;
	if (fstat(descriptor, &status) < 0 || !S_ISBLK(status.st_mode) || status.st_rdev != target->device) {
		close(descriptor);
		return -ESTALE;
	}
	return descriptor;
}

void target_close(struct target *target)
{
	if (target->descriptor >= 0)
		close(target->descriptor);
	target->descriptor = -1;
}

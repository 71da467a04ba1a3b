// SPDX-License-Identifier: Apache-2.0
// Turns a block device into who uses it, by /proc and sysfs.
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <mntent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "bpf/cleanup.h"
#include "replayer/engine/device_users.h"

enum { FAMILY_MAX = 256 }; /* more partitions than any kind of disk has */

/* A device and its partitions. */
struct family {
	dev_t members[FAMILY_MAX];
	unsigned int count;
};

static void close_mounts(FILE **mounts)
{
	if (*mounts)
		endmntent(*mounts);
}

static void system_path(char path[static PATH_MAX], dev_t device, const char *below)
{
	snprintf(path, PATH_MAX, "/sys/dev/block/%u:%u/%s", major(device), minor(device), below);
}

static bool read_number(const char *path, dev_t *device)
{
	_cleanup_fclose_ FILE *file = fopen(path, "re");
	unsigned int first, second;

	if (!file || fscanf(file, "%u:%u", &first, &second) != 2)
		return false;
	*device = makedev(first, second);
	return true;
}

static void find_family(dev_t device, struct family *family)
{
	char path[PATH_MAX];

	*family = (struct family){.members = {device}, .count = 1};
	system_path(path, device, "");
	_cleanup_closedir_ DIR *listing = opendir(path);
	for (const struct dirent *entry; listing && family->count < FAMILY_MAX && (entry = readdir(listing));) {
		char name[NAME_MAX + 16];

		if (entry->d_name[0] == '.')
			continue; /* the device itself, which may be a partition */
		snprintf(name, sizeof(name), "%s/partition", entry->d_name);
		system_path(path, device, name);
		if (access(path, F_OK) < 0)
			continue;
		snprintf(name, sizeof(name), "%s/dev", entry->d_name);
		system_path(path, device, name);
		family->count += read_number(path, &family->members[family->count]);
	}
}

static bool is_member(const struct family *family, const char *path)
{
	struct stat status;

	if (path[0] != '/' || stat(path, &status) < 0 || !S_ISBLK(status.st_mode))
		return false;
	for (unsigned int i = 0; i < family->count; i++) {
		if (family->members[i] == status.st_rdev)
			return true;
	}
	return false;
}

static bool find_mount(const struct family *family, char *user)
{
	__attribute__((cleanup(close_mounts))) FILE *mounts = setmntent("/proc/self/mounts", "re");

	for (const struct mntent *entry; mounts && (entry = getmntent(mounts));) {
		/* Of other paths a look may hang (NFS). */
		if (strncmp(entry->mnt_fsname, "/dev/", 5) != 0 || !is_member(family, entry->mnt_fsname))
			continue;
		snprintf(user, DEVICE_USER_BYTES, "%s is mounted on %s", entry->mnt_fsname, entry->mnt_dir);
		return true;
	}
	return false;
}

static bool find_swap(const struct family *family, char *user)
{
	_cleanup_fclose_ FILE *swaps = fopen("/proc/swaps", "re");
	char line[DEVICE_USER_BYTES / 2];

	while (swaps && fgets(line, sizeof(line), swaps)) {
		line[strcspn(line, " \t")] = '\0';
		if (!is_member(family, line))
			continue;
		snprintf(user, DEVICE_USER_BYTES, "%s is swap space", line);
		return true;
	}
	return false;
}

/* Device mapper, RAID and whoever else says that it lies on the device. */
static bool find_holder(const struct family *family, char *user)
{
	for (unsigned int i = 0; i < family->count; i++) {
		char path[PATH_MAX];

		system_path(path, family->members[i], "holders");
		_cleanup_closedir_ DIR *listing = opendir(path);
		for (const struct dirent *entry; listing && (entry = readdir(listing));) {
			if (entry->d_name[0] == '.')
				continue;
			snprintf(user, DEVICE_USER_BYTES, "/dev/%s lies on it", entry->d_name);
			return true;
		}
	}
	return false;
}

static bool find_loop(const struct family *family, char *user)
{
	_cleanup_closedir_ DIR *listing = opendir("/sys/block");

	for (const struct dirent *entry; listing && (entry = readdir(listing));) {
		char path[PATH_MAX], backing[PATH_MAX];

		snprintf(path, sizeof(path), "/sys/block/%s/loop/backing_file", entry->d_name);
		_cleanup_fclose_ FILE *file = fopen(path, "re");
		if (!file || !fgets(backing, sizeof(backing), file))
			continue;
		backing[strcspn(backing, "\n")] = '\0';
		if (!is_member(family, backing))
			continue;
		snprintf(user, DEVICE_USER_BYTES, "the loop device /dev/%s lies on it", entry->d_name);
		return true;
	}
	return false;
}

bool device_user(dev_t device, char user[static DEVICE_USER_BYTES])
{
	struct family family;

	find_family(device, &family);
	return find_mount(&family, user) || find_swap(&family, user) || find_holder(&family, user) ||
	       find_loop(&family, user);
}

unsigned int device_partitions(dev_t device)
{
	struct family family;

	find_family(device, &family);
	return family.count - 1;
}

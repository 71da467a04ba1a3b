// SPDX-License-Identifier: Apache-2.0
// Turns a directory into what the block devices below it were given to do.
#include "replayer/engine/device_counters.h"

#include <fcntl.h>
#include <linux/btrfs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "bpf/cleanup.h"

enum { SECTOR_BYTES = 512 }; /* of the statistics, whatever the device's own */

static void add_device(struct device_counters *counters, const char *path)
{
	int file = counters->count < DEVICES_MAX ? open(path, O_RDONLY | O_CLOEXEC) : -1;

	if (file >= 0)
		counters->files[counters->count++] = file;
}

/* A file of btrfs has a device number that no device has; the kernel lists those of its file system. */
static void add_devices_of_btrfs(struct device_counters *counters, int directory)
{
	struct btrfs_ioctl_fs_info_args info = {0};

	if (ioctl(directory, BTRFS_IOC_FS_INFO, &info) < 0 || info.num_devices > DEVICES_MAX)
		return;
	char path[sizeof("/sys/fs/btrfs//devices") + 2 * BTRFS_FSID_SIZE + 4];
	int at = snprintf(path, sizeof(path), "/sys/fs/btrfs/");

	for (int i = 0; i < BTRFS_FSID_SIZE; i++)
		at += snprintf(path + at, sizeof(path) - (size_t)at, "%s%02x",
			       i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", info.fsid[i]);
	snprintf(path + at, sizeof(path) - (size_t)at, "/devices");
	_cleanup_closedir_ DIR *devices = opendir(path);

	for (struct dirent *entry; devices && (entry = readdir(devices));) {
		char stat[sizeof(path) + sizeof(entry->d_name) + sizeof("//stat")];

		if (entry->d_name[0] == '.')
			continue;
		snprintf(stat, sizeof(stat), "%s/%s/stat", path, entry->d_name);
		add_device(counters, stat);
	}
}

void device_counters_open(struct device_counters *counters, int directory)
{
	struct stat status;
	char path[64];

	*counters = (struct device_counters){0};
	if (directory < 0 || fstat(directory, &status) < 0)
		return;
	if (!major(status.st_dev)) {
		add_devices_of_btrfs(counters, directory);
		return;
	}
	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/stat", major(status.st_dev), minor(status.st_dev));
	add_device(counters, path);
}

bool device_counters_now(const struct device_counters *counters, struct device_counts *counts)
{
	*counts = (struct device_counts){0};
	for (uint32_t d = 0; d < counters->count; d++) {
		char text[512];
		unsigned long long reads, writes, sectors;
		ssize_t length = pread(counters->files[d], text, sizeof(text) - 1, 0);

		if (length <= 0)
			return false;
		text[length] = '\0';
		/* The first, fifth and seventh (Documentation/block/stat.rst). */
		if (sscanf(text, "%llu %*u %*u %*u %llu %*u %llu", &reads, &writes, &sectors) != 3)
			return false;
		counts->reads += reads;
		counts->writes += writes;
		counts->write_bytes += sectors * SECTOR_BYTES;
	}
	return counters->count;
}

void device_counters_close(struct device_counters *counters)
{
	while (counters->count)
		close(counters->files[--counters->count]);
}

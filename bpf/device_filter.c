// SPDX-License-Identifier: Apache-2.0
/*
 * Turns the block device of a user's filter into the devices that files on it are of.
 */
#include "device_filter.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "cleanup.h"

struct device_set {
	uint32_t *devices;
	int count;
	bool overflows;
};

static bool contains(const struct device_set *set, uint32_t device)
{
	for (int i = 0; i < set->count; i++)
		if (set->devices[i] == device)
			return true;
	return false;
}

static void add(struct device_set *set, uint32_t device)
{
	if (contains(set, device))
		return;
	if (set->count == FILTER_DEVICES_MAX)
		set->overflows = true;
	else
		set->devices[set->count++] = device;
}

static bool lies_on(const struct device *device, const struct device_set *set)
{
	if (device->parent && contains(set, device->parent))
		return true;
	for (int i = 0; i < device->slave_count; i++)
		if (contains(set, device->slaves[i]))
			return true;
	return false;
}

/* Partitions of stacked devices on partitions: until nothing is added any more. */
static void add_block_devices(struct device_set *set, const struct topology *topology)
{
	int before;
	do {
		before = set->count;
		for (int i = 0; i < topology->count; i++)
			if (lies_on(&topology->devices[i], set))
				add(set, topology->devices[i].device);
	} while (set->count > before);
}

static void add_mounted(struct device_set *set)
{
	_cleanup_free_ char *line = NULL;
	size_t line_room = 0;
	_cleanup_fclose_ FILE *mounts = fopen("/proc/self/mountinfo", "re");
	while (mounts && getline(&line, &line_room, mounts) > 0) {
		char source[PATH_MAX], place[PATH_MAX];
		struct stat node;
		struct statx root;
		unsigned long long mount;
		unsigned int device_major, device_minor;
		const char *after = strstr(line, " - ");
		if (!after ||
		    sscanf(line, "%llu %*d %u:%u %*s %4095s", &mount, &device_major, &device_minor, place) != 4 ||
		    sscanf(after, " - %*s %4095s", source) != 1 || stat(source, &node) || !S_ISBLK(node.st_mode))
			continue;
		if (!contains(set, device_number(major(node.st_rdev), minor(node.st_rdev))))
			continue;
		add(set, device_number(device_major, device_minor));
		/* What stat says of files there: a subvolume of btrfs has a number of its own once more. */
		if (!statx(AT_FDCWD, place, 0, STATX_MNT_ID, &root) && root.stx_mnt_id == mount)
			add(set, device_number(root.stx_dev_major, root.stx_dev_minor));
	}
}

int device_filter_fill(uint32_t devices[FILTER_DEVICES_MAX], uint32_t device)
{
	_cleanup_free_ struct topology *topology = calloc(1, sizeof(*topology));
	struct device_set set = {.devices = devices};
	if (!topology)
		return -ENOMEM;
	topology_scan(topology);
	add(&set, device);
	add_block_devices(&set, topology);
	add_mounted(&set);
	return set.overflows ? -E2BIG : set.count;
}

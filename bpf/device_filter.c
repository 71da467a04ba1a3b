// SPDX-License-Identifier: Apache-2.0
/*
 * Turns the block device of a user's filter into the devices that files on it are of, and judges paths by them.
 */
#include "device_filter.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "cleanup.h"
#include "names.h"
#include "topology.h"

static bool contains(const struct device_filter *filter, uint32_t device)
{
	for (int i = 0; i < filter->count; i++)
		if (filter->devices[i] == device)
			return true;
	return false;
}

static void add(struct device_filter *filter, uint32_t device)
{
	if (contains(filter, device))
		return;
	if (filter->count == FILTER_DEVICES_MAX)
		filter->overflows = true;
	else
		filter->devices[filter->count++] = device;
}

static bool lies_on(const struct device *device, const struct device_filter *filter)
{
	if ((device->parent && contains(filter, device->parent)) ||
	    (device->backing && contains(filter, device->backing)))
		return true;
	for (int i = 0; i < device->slave_count; i++)
		if (contains(filter, device->slaves[i]))
			return true;
	return false;
}

/* Partitions of stacked devices on partitions, and so on: until nothing is added any more. */
static void add_block_devices(struct device_filter *filter, const struct topology *topology)
{
	int before;
	do {
		before = filter->count;
		for (int i = 0; i < topology->count; i++)
			if (lies_on(&topology->devices[i], filter))
				add(filter, topology->devices[i].device);
	} while (filter->count > before);
}

/* The device of the super block, from a line of mountinfo; 0 if that cannot be understood. */
static uint32_t parse_mount(const char *line, uint64_t *mount)
{
	unsigned int device_major, device_minor;
	bool known = sscanf(line, "%" SCNu64 " %*d %u:%u", mount, &device_major, &device_minor) == 3;
	return known ? device_number(device_major, device_minor) : 0;
}

static void add_mounted(struct device_filter *filter)
{
	_cleanup_free_ char *line = NULL;
	size_t line_room = 0;
	_cleanup_fclose_ FILE *mounts = fopen("/proc/self/mountinfo", "re");
	while (mounts && getline(&line, &line_room, mounts) > 0) {
		char source[PATH_MAX];
		struct stat node;
		uint64_t mount;
		uint32_t device = parse_mount(line, &mount);
		const char *after = strstr(line, " - ");
		if (device && after && sscanf(after, " - %*s %4095s", source) == 1 && !stat(source, &node) &&
		    S_ISBLK(node.st_mode) && contains(filter, device_number(major(node.st_rdev), minor(node.st_rdev))))
			add(filter, device);
	}
}

int device_filter_init(struct device_filter *filter, uint32_t device)
{
	*filter = (struct device_filter){};
	_cleanup_topology_ struct topology topology = {};
	topology_scan(&topology);
	add(filter, device);
	add_block_devices(filter, &topology);
	add_mounted(filter);
	return filter->overflows ? -E2BIG : 0;
}

static uint32_t device_of_mount(uint64_t wanted)
{
	_cleanup_free_ char *line = NULL;
	size_t line_room = 0;
	_cleanup_fclose_ FILE *mounts = fopen("/proc/self/mountinfo", "re");
	while (mounts && getline(&line, &line_room, mounts) > 0) {
		uint64_t mount;
		uint32_t device = parse_mount(line, &mount);
		if (device && mount == wanted)
			return device;
	}
	return 0;
}

/* The innermost directory of a path that is still there. */
static bool find_place(const char *path, struct statx *place)
{
	_cleanup_free_ char *directory = strdup(path);
	char *slash;
	while (directory && (slash = strrchr(directory, '/'))) {
		*slash = '\0';
		_cleanup_close_ int descriptor = names_open_directory(slash == directory ? "/" : directory);
		if (descriptor >= 0)
			return !statx(descriptor, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_MNT_ID, place);
	}
	return false;
}

bool device_filter_has(struct device_filter *filter, const char *path)
{
	struct statx place;
	if (!find_place(path, &place))
		return false;
	uint32_t device = device_number(place.stx_dev_major, place.stx_dev_minor);
	/* Only numbers without a major can be another one than that of the super block. */
	if (place.stx_dev_major || contains(filter, device))
		return contains(filter, device);
	struct seen_mount *seen = &filter->seen[place.stx_mnt_id % MOUNTS_SEEN];
	if (seen->mount != place.stx_mnt_id || seen->device != device)
		*seen = (struct seen_mount){
			.mount = place.stx_mnt_id,
			.device = device,
			.wanted = contains(filter, device_of_mount(place.stx_mnt_id)),
		};
	return seen->wanted;
}

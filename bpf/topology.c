// SPDX-License-Identifier: Apache-2.0
/*
 * Turns /sys/dev/block into a table of devices: what is a partition of what, and what passes its data on to what.
 */
#include "topology.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "cleanup.h"
#include "json.h"

static bool read_line(const char *directory, const char *name, char *line, size_t room)
{
	char path[PATH_MAX + 512];
	snprintf(path, sizeof(path), "%s/%s", directory, name);
	_cleanup_fclose_ FILE *stream = fopen(path, "re");
	if (!stream || !fgets(line, room, stream))
		return false;
	line[strcspn(line, "\n")] = '\0';
	return true;
}

static uint32_t read_number(const char *directory, const char *name)
{
	char line[32];
	unsigned int device_major, device_minor;
	if (!read_line(directory, name, line, sizeof(line)) || sscanf(line, "%u:%u", &device_major, &device_minor) != 2)
		return 0;
	return device_number(device_major, device_minor);
}

/* The device of a file system that has none of its own (btrfs): of the source that was mounted. */
static uint32_t mounted_source(dev_t filesystem)
{
	_cleanup_free_ char *line = NULL;
	size_t line_room = 0;
	char wanted[32];
	_cleanup_fclose_ FILE *mounts = fopen("/proc/self/mountinfo", "re");
	snprintf(wanted, sizeof(wanted), " %u:%u ", major(filesystem), minor(filesystem));
	while (mounts && getline(&line, &line_room, mounts) > 0) {
		char source[PATH_MAX];
		struct stat node;
		const char *after = strstr(line, " - ");
		if (strstr(line, wanted) && after && sscanf(after, " - %*s %4095s", source) == 1 &&
		    !stat(source, &node) && S_ISBLK(node.st_mode))
			return device_number(major(node.st_rdev), minor(node.st_rdev));
	}
	return 0;
}

static uint32_t block_device_of(dev_t filesystem)
{
	char path[64];
	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u", major(filesystem), minor(filesystem));
	return access(path, F_OK) ? mounted_source(filesystem) : device_number(major(filesystem), minor(filesystem));
}

static void look_up_slaves(struct device *device, const char *directory)
{
	char path[PATH_MAX + 16];
	snprintf(path, sizeof(path), "%s/slaves", directory);
	_cleanup_closedir_ DIR *slaves = opendir(path);
	for (struct dirent *entry; slaves && (entry = readdir(slaves));) {
		char name[300];
		snprintf(name, sizeof(name), "%s/dev", entry->d_name);
		uint32_t slave = entry->d_name[0] == '.' ? 0 : read_number(path, name);
		uint32_t *grown = slave ? realloc(device->slaves, (device->slave_count + 1) * sizeof(*grown)) : NULL;
		if (!grown)
			continue;
		device->slaves = grown;
		device->slaves[device->slave_count++] = slave;
	}
}

static void look_up(struct device *device, uint32_t number)
{
	char link[64], directory[PATH_MAX], line[PATH_MAX];
	struct stat backing;

	*device = (struct device){.device = number};
	snprintf(link, sizeof(link), "/sys/dev/block/%u:%u", number >> 20, number & 0xfffff);
	if (!realpath(link, directory))
		return;
	snprintf(device->name, sizeof(device->name), "%s", strrchr(directory, '/') + 1);
	if (read_line(directory, "size", line, sizeof(line)))
		device->sectors = strtoull(line, NULL, 10);
	if (read_line(directory, "partition", line, sizeof(line))) {
		device->parent = read_number(directory, "../dev");
		device->rotational = read_line(directory, "../queue/rotational", line, sizeof(line)) && *line == '1';
		return;
	}
	device->rotational = read_line(directory, "queue/rotational", line, sizeof(line)) && *line == '1';
	look_up_slaves(device, directory);
	/* The path of a file that was deleted has words behind it, and is not found: the device counts as not stacked. */
	if (read_line(directory, "loop/backing_file", line, sizeof(line)) && !stat(line, &backing))
		device->backing = S_ISBLK(backing.st_mode)
					  ? device_number(major(backing.st_rdev), minor(backing.st_rdev))
					  : block_device_of(backing.st_dev);
	/* NVMe with several paths: what is submitted to a disk of the subsystem is seen again on that of a controller. */
	bool has_paths = strstr(directory, "/nvme-subsystem/");
	device->stacked = device->slave_count || device->backing || has_paths;
}

const struct device *topology_device(struct topology *topology, uint32_t device)
{
	for (int i = 0; i < topology->count; i++)
		if (topology->devices[i].device == device)
			return &topology->devices[i];
	struct device *grown = realloc(topology->devices, (topology->count + 1) * sizeof(*grown));
	if (!grown)
		return NULL;
	topology->devices = grown;
	look_up(&topology->devices[topology->count], device);
	return &topology->devices[topology->count++];
}

uint32_t topology_disk_of(struct topology *topology, dev_t filesystem)
{
	uint32_t number = block_device_of(filesystem);
	const struct device *device = number ? topology_device(topology, number) : NULL;
	return device && device->parent ? device->parent : number;
}

void topology_scan(struct topology *topology)
{
	_cleanup_closedir_ DIR *all = opendir("/sys/dev/block");
	for (struct dirent *entry; all && (entry = readdir(all));) {
		char path[300], line[32];
		unsigned int device_major, device_minor;
		snprintf(path, sizeof(path), "/sys/dev/block/%s", entry->d_name);
		/* Empty loop devices and drives without a medium would only fill the table. */
		if (sscanf(entry->d_name, "%u:%u", &device_major, &device_minor) == 2 &&
		    read_line(path, "size", line, sizeof(line)) && strcmp(line, "0"))
			topology_device(topology, device_number(device_major, device_minor));
	}
}

static void put_number(FILE *json, const char *name, uint32_t device)
{
	if (device)
		fprintf(json, ",\"%s\":\"%u:%u\"", name, device >> 20, device & 0xfffff);
}

uint64_t topology_json_bytes_max(const struct topology *topology)
{
	uint64_t bytes = 0;
	for (int i = 0; i < topology->count; i++)
		bytes += DEVICE_JSON_BYTES + (uint64_t)topology->devices[i].slave_count * SLAVE_JSON_BYTES;
	return bytes;
}

void topology_put(const struct topology *topology, FILE *json)
{
	for (int i = 0; i < topology->count; i++) {
		const struct device *device = &topology->devices[i];
		fprintf(json, "%s{\"device\":\"%u:%u\",\"name\":", i ? "," : "", device->device >> 20,
			device->device & 0xfffff);
		json_string(json, device->name);
		fprintf(json, ",\"sectors\":%llu,\"rotational\":%s", (unsigned long long)device->sectors,
			device->rotational ? "true" : "false");
		put_number(json, "parent", device->parent);
		put_number(json, "backing", device->backing);
		for (int slave = 0; slave < device->slave_count; slave++)
			fprintf(json, "%s\"%u:%u\"%s", slave ? "," : ",\"slaves\":[", device->slaves[slave] >> 20,
				device->slaves[slave] & 0xfffff, slave + 1 == device->slave_count ? "]" : "");
		fprintf(json, ",\"stacked\":%s}", device->stacked ? "true" : "false");
	}
}

void topology_deinit(struct topology *topology)
{
	for (int i = 0; i < topology->count; i++)
		free(topology->devices[i].slaves);
	free(topology->devices);
}

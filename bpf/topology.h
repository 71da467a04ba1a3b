/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FLEXTRACE_TOPOLOGY_H
#define FLEXTRACE_TOPOLOGY_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

enum {
	DEVICE_JSON_BYTES = 512, /* of one at most, with what closure.h says of it, but for its slaves */
	SLAVE_JSON_BYTES = 16, /* of each of those at most */
};

/* A block device as /sys says it is. Device numbers in the kernel's encoding: major << 20 | minor. */
struct device {
	uint32_t device;
	char name[32]; /* "" = unknown, it has gone */
	uint64_t sectors;
	bool rotational;
	bool stacked; /* passes its data on to another block device */
	uint32_t parent; /* whole disk of a partition, 0 = is one */
	uint32_t *slaves; /* what it is made of: dm, md */
	int slave_count;
	uint32_t backing; /* of a loop device: the device of its file's file system */
};

/* Devices that are there or were seen while recording. */
struct topology {
	struct device *devices;
	int count;
};

static inline uint32_t device_number(uint32_t major, uint32_t minor)
{
	return major << 20 | minor;
}

/* Looks up a device at its first sight; NULL if there is no memory. Holds until the next call. */
const struct device *topology_device(struct topology *topology, uint32_t device);
/* The disk that carries a file system, 0 if none does (tmpfs). */
uint32_t topology_disk_of(struct topology *topology, dev_t filesystem);
/* Looks up all block devices that hold data, with their partitions. */
void topology_scan(struct topology *topology);
/* How long the next can be at most, with what closure.h says of the devices. */
uint64_t topology_json_bytes_max(const struct topology *topology);
/* The elements of a JSON array. */
void topology_put(const struct topology *topology, FILE *json);
void topology_deinit(struct topology *topology);

#define _cleanup_topology_ __attribute__((cleanup(topology_deinit)))

#endif /* FLEXTRACE_TOPOLOGY_H */

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FLEXTRACE_DEVICE_FILTER_H
#define FLEXTRACE_DEVICE_FILTER_H

#include <stdbool.h>
#include <stdint.h>

#include "ring_event.h"

enum { MOUNTS_SEEN = 64 };

/* A mount on which files have other device numbers than its super block, as those of each subvolume of a btrfs have. */
struct seen_mount {
	uint64_t mount;
	uint32_t device; /* that number */
	bool wanted;
};

/* Devices of the super blocks of the file systems whose data lies on a block device. */
struct device_filter {
	uint32_t devices[FILTER_DEVICES_MAX]; /* up to the first 0 */
	int count;
	bool overflows;
	struct seen_mount seen[MOUNTS_SEEN]; /* by mount, several of which share a place */
};

/*
 * Fills in the device itself, its partitions, what is stacked on any of them (dm, md, loop devices of files there), and file
 * systems with a device number of their own (btrfs) that are mounted from one. 0, or -E2BIG if there are more than fit.
 */
int device_filter_init(struct device_filter *filter, uint32_t device);
/* Whether what has this path, or had it, lies on the device: by its directory, without waiting for any server. */
bool device_filter_has(struct device_filter *filter, const char *path);

#endif /* FLEXTRACE_DEVICE_FILTER_H */

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns a directory into what the block devices below it were given to write, by whomever: the data of this process, the
 * file system's own structures, and other programs' files.
 */
#ifndef FLEXTRACE_DEVICE_COUNTERS_H
#define FLEXTRACE_DEVICE_COUNTERS_H

#include <stdbool.h>
#include <stdint.h>

enum { DEVICES_MAX = 32 };

struct device_counters {
	uint32_t count; /* 0 where no block device is known: memory, a network, a stack of directories */
	int files[DEVICES_MAX]; /* the kernel's statistics of each, open */
};

/* `directory` is a descriptor; without one (negative) nothing is known. */
void device_counters_open(struct device_counters *counters, int directory);

/* Bytes written since the devices were made; false where that is not known. */
bool device_counters_written(const struct device_counters *counters, uint64_t *bytes);

void device_counters_close(struct device_counters *counters);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns a directory into what the block devices below it were given to do, by whomever: for the data of this process, the
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

/* Since the devices were made. */
struct device_counts {
	uint64_t reads; /* requests as the device has them: merged, or a part of what was asked for */
	uint64_t writes;
	uint64_t write_bytes;
};

/* `directory` is a descriptor; without one (negative) nothing is known. */
void device_counters_open(struct device_counters *counters, int directory);

/* The sum over the devices; false where that is not known. */
bool device_counters_now(const struct device_counters *counters, struct device_counts *counts);

void device_counters_close(struct device_counters *counters);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns what the kernel counted into the bytes that storage read for this process, and those that it had to take.
 *
 * Of writes there are two counts, and each can be too large. The account of a process counts what becomes dirty: in a file
 * system with large folios all of a folio of which a part is written (8.7 times what went to the device where a tenth of
 * a file was written in sequence, ext4). What the device was given counts journals, metadata and other programs, too.
 */
#ifndef FLEXTRACE_DEVICE_TRAFFIC_H
#define FLEXTRACE_DEVICE_TRAFFIC_H

#include <stdbool.h>
#include <stdint.h>

#include "replayer/engine/device_counters.h"

struct device_traffic {
	bool account_known; /* not where the kernel lacks CONFIG_TASK_IO_ACCOUNTING */
	uint64_t read_bytes; /* that missed the page cache, read-ahead included */
	uint64_t dirtied_bytes; /* that made a clean page dirty (of a folio all of it), or went around the page cache */
	bool device_known; /* that of the directory; not where it lies on none */
	struct device_counts device;
};

/* Since the process and the devices began. */
struct device_traffic device_traffic_now(const struct device_counters *counters);

#endif

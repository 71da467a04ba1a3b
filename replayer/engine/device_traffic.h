/* SPDX-License-Identifier: Apache-2.0 */
/* Turns the kernel's account of this process into the bytes that storage had to read and to take for it. */
#ifndef FLEXTRACE_DEVICE_TRAFFIC_H
#define FLEXTRACE_DEVICE_TRAFFIC_H

#include <stdbool.h>
#include <stdint.h>

struct device_traffic {
	bool known; /* not where the kernel lacks CONFIG_TASK_IO_ACCOUNTING */
	uint64_t read_bytes; /* that missed the page cache, read-ahead included */
	uint64_t write_bytes; /* that made a clean page dirty (of a folio all of it), or went around the page cache */
};

/* Since the process began, all of its threads together. */
struct device_traffic device_traffic_now(void);

#endif

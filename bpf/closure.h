/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FLEXTRACE_CLOSURE_H
#define FLEXTRACE_CLOSURE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "ring_event.h"
#include "topology.h"
#include "tracer.h"

/* What a disk has moved, at one moment: as /sys/block/DISK/stat says it, and as the tracer has seen it. */
struct disk_count {
	uint32_t device;
	uint64_t read_bytes, write_bytes;
	uint64_t seen_read_bytes, seen_write_bytes;
};

struct disk_counts {
	struct disk_count *of;
	int count;
};

struct closure {
	struct disk_counts before, after;
	struct account seen, kernel; /* of the traced tasks, kernel without what execve read */
	bool tasks_wanted, disks_wanted; /* layers that are recorded */
};

/* After attaching. */
void closure_begin(struct closure *closure, const struct tracer *tracer, const struct programs_wish *wish);
/* Before detaching ... */
void closure_end_disks(struct closure *closure, const struct tracer *tracer);
/* ... and after it. */
void closure_end_tasks(struct closure *closure, const struct tracer *tracer);
/* {"tasks": {...}, "devices": {...}} */
void closure_put(const struct closure *closure, FILE *json);
/* One line about what is off; nothing if all agrees. */
void closure_say(const struct closure *closure, FILE *stream);
void closure_deinit(struct closure *closure);

#endif /* FLEXTRACE_CLOSURE_H */

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FLEXTRACE_RING_PLAN_H
#define FLEXTRACE_RING_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "ring_event.h"

enum { RING_BYTES_MIN = 1 << 15 };

/* How large the ring of each CPU is: large where one is online when recording begins, small where one may come later. */
struct ring_plan {
	bool is_online[CPUS_MAX];
	int online_cpus;
	int late_cpus; /* that are possible, but not online */
	uint64_t bytes; /* of the ring of one that is online, a power of two */
	uint64_t late_bytes; /* of another */
	uint64_t memory_bytes_max; /* what all take unless the user wants more */
};

/* For so many possible CPUs of this machine. wanted_bytes: for each CPU, 0 = 16 MiB, or what there is memory for. */
int ring_plan_make(struct ring_plan *plan, int cpus, uint64_t wanted_bytes);
/* Which of so many possible CPUs stand in a list of the kernel's, such as 0-3,8; all if there is no such file. */
void ring_plan_find_online(struct ring_plan *plan, int cpus, const char *list);
/* The sizes, of the CPUs that were found, on a machine of so much memory. */
void ring_plan_size(struct ring_plan *plan, uint64_t wanted_bytes, uint64_t memory_bytes);
uint64_t ring_plan_bytes_of(const struct ring_plan *plan, int cpu);
/* Of all rings together. */
uint64_t ring_plan_memory_bytes(const struct ring_plan *plan);
/* Tells where the rings are smaller than usual, or take much memory because the user wants them so. */
void ring_plan_say(const struct ring_plan *plan, uint64_t wanted_bytes, bool quiet);

#endif /* FLEXTRACE_RING_PLAN_H */

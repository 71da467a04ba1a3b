// SPDX-License-Identifier: Apache-2.0
/*
 * Turns the CPUs and the memory of a machine into the sizes of the rings, which are there in full from the start.
 *
 * Firmware and hypervisors name many more CPUs as possible than there are, 128 or 240 beside two, and a machine with many has
 * one recorder that empties all rings. So a CPU that is not online has a small ring, which counts what it loses if it comes
 * online and is busy, and all of these together take no more than the others; and all rings together are limited.
 */
#include "ring_plan.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "cleanup.h"

#define ONLINE_CPUS "/sys/devices/system/cpu/online"

enum {
	RING_BYTES_DEFAULT = 16 << 20,
	LATE_SHARE = 64, /* how many times smaller the ring of a CPU is that is not online */
	MEMORY_SHARE = 16, /* all rings take that part of the memory at most, ... */
	MEMORY_BYTES_MAX = 1 << 30, /* ... and no more than this */
};

void ring_plan_find_online(struct ring_plan *plan, int cpus, const char *list)
{
	_cleanup_fclose_ FILE *file = fopen(list, "re");
	int first, last, separator = ',';
	plan->online_cpus = 0;
	while (file && separator == ',' && fscanf(file, "%d", &first) == 1) {
		last = first;
		separator = fgetc(file);
		if (separator == '-' && fscanf(file, "%d", &last) == 1)
			separator = fgetc(file);
		for (int cpu = first; cpu >= 0 && cpu <= last && cpu < cpus; cpu++)
			plan->is_online[cpu] = true;
	}
	for (int cpu = 0; cpu < cpus; cpu++) {
		plan->is_online[cpu] |= !file;
		plan->online_cpus += plan->is_online[cpu];
	}
	plan->late_cpus = cpus - plan->online_cpus;
}

static void set_sizes(struct ring_plan *plan, uint64_t bytes)
{
	uint64_t late_bytes = bytes / LATE_SHARE;
	while (plan->late_cpus * late_bytes > plan->online_cpus * bytes)
		late_bytes /= 2;
	plan->bytes = bytes;
	plan->late_bytes = late_bytes > RING_BYTES_MIN ? late_bytes : RING_BYTES_MIN;
}

void ring_plan_size(struct ring_plan *plan, uint64_t wanted_bytes, uint64_t memory_bytes)
{
	uint64_t share = memory_bytes / MEMORY_SHARE;
	plan->memory_bytes_max = share < MEMORY_BYTES_MAX ? share : MEMORY_BYTES_MAX;
	set_sizes(plan, wanted_bytes ? wanted_bytes : RING_BYTES_DEFAULT);
	while (!wanted_bytes && plan->bytes > RING_BYTES_MIN && ring_plan_memory_bytes(plan) > plan->memory_bytes_max)
		set_sizes(plan, plan->bytes / 2);
}

int ring_plan_make(struct ring_plan *plan, int cpus, uint64_t wanted_bytes)
{
	*plan = (struct ring_plan){};
	if (cpus < 0 || cpus > CPUS_MAX)
		return cpus < 0 ? cpus : -E2BIG;
	ring_plan_find_online(plan, cpus, ONLINE_CPUS);
	ring_plan_size(plan, wanted_bytes, (uint64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE));
	return 0;
}

uint64_t ring_plan_bytes_of(const struct ring_plan *plan, int cpu)
{
	return plan->is_online[cpu] ? plan->bytes : plan->late_bytes;
}

uint64_t ring_plan_memory_bytes(const struct ring_plan *plan)
{
	return plan->online_cpus * plan->bytes + plan->late_cpus * plan->late_bytes;
}

void ring_plan_say(const struct ring_plan *plan, uint64_t wanted_bytes, bool quiet)
{
	unsigned long long memory_mib = ring_plan_memory_bytes(plan) >> 20;
	if (wanted_bytes && ring_plan_memory_bytes(plan) > plan->memory_bytes_max)
		fprintf(stderr,
			"flextrace record: warning: the ring buffers of %d CPUs take %llu MiB of memory, which the application's page cache lacks: a smaller --ring-bytes takes less\n",
			plan->online_cpus + plan->late_cpus, memory_mib);
	else if (!wanted_bytes && plan->bytes < RING_BYTES_DEFAULT && !quiet)
		fprintf(stderr,
			"flextrace record: note: the ring buffers have %llu bytes, not %d, so that those of %d CPUs take no more than %llu MiB of memory: --ring-bytes for others\n",
			(unsigned long long)plan->bytes, RING_BYTES_DEFAULT, plan->online_cpus + plan->late_cpus,
			memory_mib);
}

// SPDX-License-Identifier: Apache-2.0
/*
 * How large the recorder makes the rings of a machine that is not there: CPUs online and not, bytes of the ring of one of each,
 * bytes of all; a line with the CPUs that are online; and on standard error what the user is told.
 *
 *	ring_plans LIST CPUS WANTED-BYTES MEMORY-BYTES
 *
 * LIST: a file like /sys/devices/system/cpu/online.
 */
#include <err.h>
#include <stdio.h>
#include <stdlib.h>

#include "bpf/ring_plan.h"

int main(int count, char **arguments)
{
	static struct ring_plan plan;
	if (count != 5)
		errx(2, "usage: ring_plans LIST CPUS WANTED-BYTES MEMORY-BYTES");
	ring_plan_find_online(&plan, atoi(arguments[2]), arguments[1]);
	ring_plan_size(&plan, strtoull(arguments[3], NULL, 10), strtoull(arguments[4], NULL, 10));
	printf("%d %d %llu %llu %llu\n", plan.online_cpus, plan.late_cpus, (unsigned long long)plan.bytes,
	       (unsigned long long)plan.late_bytes, (unsigned long long)ring_plan_memory_bytes(&plan));
	for (int cpu = 0; cpu < atoi(arguments[2]); cpu++)
		if (plan.is_online[cpu])
			printf("%d ", cpu);
	printf("\n");
	ring_plan_say(&plan, strtoull(arguments[3], NULL, 10), false);
	return 0;
}

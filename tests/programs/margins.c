// SPDX-License-Identifier: Apache-2.0
/* Reads how late wake-ups were, in nanoseconds, and writes the margin after each. The first margin is the argument. */
#include <stdio.h>
#include <stdlib.h>

#include "replayer/engine/margin.h"

int main(int argc, char **argv)
{
	if (argc != 2)
		return 2;
	uint64_t margin_ns = strtoull(argv[1], NULL, 10);
	unsigned long long late_ns;

	while (scanf("%llu", &late_ns) == 1) {
		margin_ns = margin_after(margin_ns, late_ns);
		printf("%llu\n", (unsigned long long)margin_ns);
	}
	return 0;
}

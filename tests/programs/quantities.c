// SPDX-License-Identifier: Apache-2.0
/*
 * What the recorder makes of quantities: a line for each, of the bytes and the nanoseconds that it is; - where it is none.
 *
 *	quantities TEXT...
 */
#include <stdio.h>

#include "bpf/quantity.h"

static void say(bool is_one, uint64_t number, char end)
{
	if (is_one)
		printf("%llu%c", (unsigned long long)number, end);
	else
		printf("-%c", end);
}

int main(int count, char **texts)
{
	for (int i = 1; i < count; i++) {
		uint64_t bytes = 0, duration_ns = 0;
		bool is_size = quantity_bytes(texts[i], &bytes), is_time = quantity_duration_ns(texts[i], &duration_ns);
		say(is_size, bytes, ' ');
		say(is_time, duration_ns, '\n');
	}
	return 0;
}

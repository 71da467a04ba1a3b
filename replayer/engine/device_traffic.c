// SPDX-License-Identifier: Apache-2.0
// Turns what the kernel counted into the bytes that storage read for this process, and those that it had to take.
#include "replayer/engine/device_traffic.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool find_count(const char *text, const char *name, uint64_t *count)
{
	const char *line = strstr(text, name);
	unsigned long long value;

	if (!line || sscanf(line + strlen(name), "%llu", &value) != 1)
		return false;
	*count = value;
	return true;
}

static void read_account(struct device_traffic *traffic)
{
	char text[512];
	int file = open("/proc/self/io", O_RDONLY | O_CLOEXEC);

	if (file < 0)
		return;
	ssize_t length = read(file, text, sizeof(text) - 1);
	close(file);
	if (length <= 0)
		return;
	text[length] = '\0';
	/* With the line's end before them, so that cancelled_write_bytes is not taken for one of them. */
	traffic->account_known = find_count(text, "\nread_bytes: ", &traffic->read_bytes) &&
				 find_count(text, "\nwrite_bytes: ", &traffic->dirtied_bytes);
}

struct device_traffic device_traffic_now(const struct device_counters *counters)
{
	struct device_traffic traffic = {0};

	read_account(&traffic);
	traffic.device_known = device_counters_now(counters, &traffic.device);
	return traffic;
}

// SPDX-License-Identifier: Apache-2.0
// Turns the kernel's account of this process into the bytes that storage had to read and to take for it.
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

struct device_traffic device_traffic_now(void)
{
	struct device_traffic traffic = {0};
	char text[512];
	int file = open("/proc/self/io", O_RDONLY | O_CLOEXEC);

	if (file < 0)
		return traffic;
	ssize_t length = read(file, text, sizeof(text) - 1);
	close(file);
	if (length <= 0)
		return traffic;
	text[length] = '\0';
	/* With the line's end before them, so that cancelled_write_bytes is not taken for one of them. */
	traffic.known = find_count(text, "\nread_bytes: ", &traffic.read_bytes) &&
			find_count(text, "\nwrite_bytes: ", &traffic.write_bytes);
	return traffic;
}

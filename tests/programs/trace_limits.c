// SPDX-License-Identifier: Apache-2.0
/*
 * A trace that is limited as much as it may be on a machine with so many CPUs, all of which have lost something of every kind in
 * the end, and so many devices, each made of so many others, of which as much is told as there can be. Prints the limit, and how
 * many records there are besides.
 *
 *	trace_limits FILE CPUS DEVICES SLAVES
 */
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bpf/closure.h"
#include "bpf/losses.h"

static void make_devices(struct topology *topology, struct closure *closure, int devices, int slaves)
{
	*topology = (struct topology){calloc(devices + 1, sizeof(*topology->devices)), devices};
	*closure = (struct closure){
		.after = {calloc(devices + 1, sizeof(*closure->after.of)), devices},
		.disks_wanted = true,
	};
	if (!topology->devices || !closure->after.of)
		errx(1, "no memory");
	for (int i = 0; i < devices; i++) {
		struct device *device = &topology->devices[i];

		*device = (struct device){
			.device = UINT32_MAX,
			.sectors = UINT64_MAX,
			.parent = UINT32_MAX,
			.slaves = malloc(slaves * sizeof(*device->slaves)),
			.slave_count = slaves,
			.backing = UINT32_MAX,
		};
		if (slaves && !device->slaves)
			errx(1, "no memory");
		memset(device->name, '"', sizeof(device->name) - 1);
		memset(device->slaves, 0xff, slaves * sizeof(*device->slaves));
		closure->after.of[i] = (struct disk_count){UINT32_MAX, 1, 1, UINT64_MAX, UINT64_MAX};
	}
}

/* As long as those of long commands; to be freed. */
static char *make_json(const struct topology *topology, const struct closure *closure)
{
	char *text = NULL;
	size_t bytes;
	FILE *json = open_memstream(&text, &bytes);

	if (!json)
		return NULL;
	fprintf(json, "%*s", 60 << 10, "");
	topology_put(topology, json);
	closure_put(closure, json);
	return fclose(json) ? NULL : text;
}

int main(int count, char **arguments)
{
	static struct writer writer;
	struct task_record task = {.kind = RECORD_TASK};
	struct gap_record gap = {.kind = RECORD_GAP};
	struct topology topology;
	struct closure closure;
	if (count != 5)
		errx(2, "usage: trace_limits FILE CPUS DEVICES SLAVES");
	make_devices(&topology, &closure, atoi(arguments[3]), atoi(arguments[4]));
	uint64_t gap_bytes = losses_bytes_max(atoi(arguments[2]));
	uint64_t end_bytes = gap_bytes + topology_json_bytes_max(&topology);
	uint64_t limit = writer_limit_min(end_bytes);
	char *json = make_json(&topology, &closure);
	if (!json || writer_init(&writer, arguments[1], false, "{}"))
		errx(1, "cannot make %s", arguments[1]);
	writer_begin(&writer);
	writer_limit(&writer, limit, end_bytes);
	while (!writer.full)
		writer_append(&writer, &task);
	for (uint64_t i = 0; i < gap_bytes / TRACE_RECORD_BYTES; i++)
		writer_append(&writer, &gap);
	if (writer_deinit(&writer, json))
		errx(1, "cannot write %s", arguments[1]);
	printf("%llu %llu\n", (unsigned long long)limit, (unsigned long long)writer.header.count[RECORD_TASK]);
	free(json);
	topology_deinit(&topology);
	closure_deinit(&closure);
	return 0;
}

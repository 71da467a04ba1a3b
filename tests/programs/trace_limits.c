// SPDX-License-Identifier: Apache-2.0
/*
 * A trace that is limited as much as it may be on a machine with so many CPUs, all of which have lost something of every kind in
 * the end. Prints the limit, and how many records there are besides.
 *
 *	trace_limits FILE CPUS
 */
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bpf/losses.h"

int main(int count, char **arguments)
{
	static struct writer writer;
	static char json[60 << 10]; /* as long as those of long commands */
	struct task_record task = {.kind = RECORD_TASK};
	struct gap_record gap = {.kind = RECORD_GAP};
	if (count != 3)
		errx(2, "usage: trace_limits FILE CPUS");
	uint64_t gaps = losses_gaps_max(atoi(arguments[2]));
	uint64_t limit = writer_limit_min(gaps);
	memset(json, ' ', sizeof(json) - 1);
	if (writer_init(&writer, arguments[1], false, "{}"))
		errx(1, "cannot make %s", arguments[1]);
	writer_begin(&writer);
	writer_limit(&writer, limit, gaps);
	while (!writer.full)
		writer_append(&writer, &task);
	for (uint64_t i = 0; i < gaps; i++)
		writer_append(&writer, &gap);
	if (writer_deinit(&writer, json))
		errx(1, "cannot write %s", arguments[1]);
	printf("%llu %llu\n", (unsigned long long)limit, (unsigned long long)writer.header.count[RECORD_TASK]);
	return 0;
}

// SPDX-License-Identifier: Apache-2.0
/*
 * Writes the verdict on a run of a number of passes, each with a schedule of a second in which all operations were on time,
 * that slipped by so many nanoseconds in all: the arguments.
 */
#include <stdio.h>
#include <stdlib.h>

#include "replayer/engine/accuracy.h"

int main(int argc, char **argv)
{
	static const struct run_options options = {.timing = TIMING_RECORDED, .late = LATE_SLIP, .speed = 1};
	static struct schedule schedule = {.first_start_ns = 1, .last_start_ns = 1000000001};
	static struct run run = {.options = &options, .schedule = &schedule};
	struct tally tally = {.records = {[KIND_IO] = 1009}};

	if (argc != 3)
		return 2;
	run.passes = (uint32_t)strtoul(argv[1], NULL, 10);
	run.slipped_ns = strtoull(argv[2], NULL, 10);
	puts(verdict_name(accuracy_of(&run, &tally).verdict));
	return 0;
}

// SPDX-License-Identifier: Apache-2.0
/*
 * Turns options and loaded programs into the text of --dry-run.
 */
#include "plan.h"

#include <errno.h>
#include <libgen.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cleanup.h"
#include "summary.h"

static void say_target(const struct options *options)
{
	if (options->process)
		printf("would record  process %d, its threads and children\n", options->process);
	else if (options->group_path)
		printf("would record  the tasks of control group %s\n", options->group_path);
	else
		printf("would record  %s and everything it starts\n", options->command[0]);
	printf("layers        %s%s%s\n", options->layer_vfs ? "vfs" : "",
	       options->layer_vfs && options->layer_block ? ", " : "", options->layer_block ? "block" : "");
	if (options->device)
		printf("only          device %u:%u\n", options->device >> 20, options->device & 0xfffff);
	if (*options->path_prefix)
		printf("only          files below %s\n", options->path_prefix);
	if (options->size_bytes_min)
		printf("only          reads and writes of at least %llu bytes\n",
		       (unsigned long long)options->size_bytes_min);
	if (options->duration_ns)
		printf("until         %.9g s have passed\n", options->duration_ns / 1e9);
	if (options->trace_bytes_max)
		printf("until         the trace has %llu bytes\n", (unsigned long long)options->trace_bytes_max);
}

/* Whether the trace could be made there, without making it. */
static int say_output(const struct options *options, const char *path)
{
	_cleanup_free_ char *copy = strdup(path);
	const char *directory = copy ? dirname(copy) : ".";
	_cleanup_topology_ struct topology topology = {};
	struct stat place;
	int exit_code = EXIT_OK;

	printf("output        %s", path);
	if (stat(directory, &place)) {
		printf(": cannot use directory %s: %s\n", directory, strerror(errno));
		exit_code = EXIT_FAILED;
	} else if (!access(path, F_OK) && !options->force) {
		printf(": exists, choose another name or give --force\n");
		exit_code = EXIT_USAGE;
	} else if (access(directory, W_OK)) {
		printf(": cannot write to directory %s: %s\n", directory, strerror(errno));
		exit_code = EXIT_FAILED;
	} else {
		printf("\n");
		summary_say_same_disk(&topology, path, place.st_dev, options->command ? getpid() : options->process,
				      options->path_prefix, stdout);
		summary_say_missing_prefix(options->path_prefix, stdout);
	}
	return exit_code;
}

static void say_rings(const struct ring_plan *rings)
{
	printf("rings         %d x %llu bytes", rings->online_cpus, (unsigned long long)rings->bytes);
	if (rings->late_cpus)
		printf(" + %d x %llu bytes, of CPUs that are not online,", rings->late_cpus,
		       (unsigned long long)rings->late_bytes);
	printf(" = %llu MiB of memory\n", (unsigned long long)(ring_plan_memory_bytes(rings) >> 20));
}

int plan_say(const struct options *options, const struct programs_wish *wish, const struct tracer *tracer,
	     const char *path)
{
	say_target(options);
	int exit_code = say_output(options, path);
	say_rings(&tracer->ring_plan);
	printf("programs\n");
	tracer_describe(tracer, wish, stdout);
	return exit_code;
}

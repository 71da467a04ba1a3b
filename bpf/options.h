/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FLEXTRACE_OPTIONS_H
#define FLEXTRACE_OPTIONS_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "control_group.h"

enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_NOT_TRUSTWORTHY = 3 };

struct options {
	const char *output; /* NULL: made from the command's name and the time */
	bool force;
	bool quiet;
	bool dry_run;
	bool survey;
	bool intermediate; /* the trace is made something else of, and goes */
	bool layer_vfs;
	bool layer_block;
	pid_t process; /* 0: a command is started, or a control group recorded */
	const char *group_path; /* control group whose tasks are recorded, NULL = none */
	struct control_group group;
	const char *cgroup; /* memory control group that the command joins, NULL = none */
	uint64_t ring_bytes; /* per CPU, a power of two that holds the events of any one call; 0 = not given */
	uint32_t files_max; /* that are told apart */
	uint64_t duration_ns; /* 0 = no limit */
	uint64_t trace_bytes_max; /* 0 = no limit */
	uint64_t trace_end_bytes; /* of these for what is told at its end (writer.h) */
	/* What is left out. */
	const char *device_name; /* NULL = nothing */
	uint32_t device; /* major << 20 | minor */
	char path_prefix[PATH_MAX]; /* without symbolic links and a slash at its end; "" = nothing is left out */
	uint64_t size_bytes_min; /* data operations that ask for less */
	char **command; /* NULL-terminated, NULL with process and group */
};

/* Ends the process with EXIT_USAGE and a message if the options make no sense. */
void options_parse(struct options *options, int argc, char **argv);

#endif /* FLEXTRACE_OPTIONS_H */

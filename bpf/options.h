/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FLEXTRACE_OPTIONS_H
#define FLEXTRACE_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_NOT_TRUSTWORTHY = 3 };

struct options {
	const char *output; /* NULL: made from the command's name and the time */
	bool force;
	bool quiet;
	bool layer_vfs;
	bool layer_block;
	pid_t process; /* 0: a command is started */
	const char *cgroup; /* memory control group that the command joins, NULL = none */
	uint64_t ring_bytes; /* per CPU, a power of two */
	char **command; /* NULL-terminated, NULL with process */
};

/* Ends the process with EXIT_USAGE and a message if the options make no sense. */
void options_parse(struct options *options, int argc, char **argv);

#endif /* FLEXTRACE_OPTIONS_H */

// SPDX-License-Identifier: Apache-2.0
/*
 * Turns the command line of flextrace-record into struct options.
 */
#include "options.h"

#include <argp.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
	RING_BYTES_DEFAULT = 16 << 20,
	RING_BYTES_MIN = 1 << 12,
	RING_BYTES_MAX = 1 << 30,
};

enum option_key {
	OPTION_LAYER = 0x100,
	OPTION_CGROUP,
	OPTION_RING_BYTES,
};

const char *argp_program_version = "flextrace-record " FLEXTRACE_VERSION;

static const char documentation[] =
	"Record the I/O of a command and everything it starts, or of a running process with its threads and children, "
	"at the VFS layer (system calls on files) and the block layer (requests of devices).\v"
	"The command's exit status is passed on. Otherwise: 0 ok, 1 failed, 2 usage, 3 records were lost.\n"
	"Ctrl-C ends a recording cleanly.";

static const struct argp_option argp_options[] = {
	{0, 0, 0, 0, "What to record:", 1},
	{"process", 'p', "PID", 0, "a running process, with its threads and children", 1},
	{"layer", OPTION_LAYER, "LAYER", 0, "vfs, block or both (default: both)", 1},
	{0, 0, 0, 0, "Where to:", 2},
	{"output", 'o', "FILE", 0, "trace file (default: COMMAND-DATE-TIME.iotrace)", 2},
	{"force", 'f', 0, 0, "overwrite FILE", 2},
	{"quiet", 'q', 0, 0, "say nothing but warnings and errors", 2},
	{0, 0, 0, 0, "How:", 3},
	{"cgroup", OPTION_CGROUP, "DIRECTORY", 0, "start the command in this memory control group", 3},
	{"ring-bytes", OPTION_RING_BYTES, "BYTES", 0,
	 "size of the ring buffer of each CPU, a power of two (default: 16777216)", 3},
	{0},
};

static uint64_t parse_number(const char *text, uint64_t max, struct argp_state *state, const char *what)
{
	char *end = NULL;
	errno = 0;
	uint64_t value = strtoull(text, &end, 10);
	if (errno || end == text || *end || value == 0 || value > max || *text == '-')
		argp_error(state, "%s '%s' is not a number from 1 to %llu", what, text, (unsigned long long)max);
	return value;
}

static error_t parse_option(int key, char *argument, struct argp_state *state)
{
	struct options *options = state->input;

	switch (key) {
	case 'p':
		options->process = parse_number(argument, INT32_MAX, state, "process");
		break;
	case 'o':
		options->output = argument;
		break;
	case 'f':
		options->force = true;
		break;
	case 'q':
		options->quiet = true;
		break;
	case OPTION_LAYER:
		options->layer_vfs = !strcmp(argument, "vfs") || !strcmp(argument, "both");
		options->layer_block = !strcmp(argument, "block") || !strcmp(argument, "both");
		if (!options->layer_vfs && !options->layer_block)
			argp_error(state, "layer '%s' is unknown: choose vfs, block or both", argument);
		break;
	case OPTION_CGROUP:
		options->cgroup = argument;
		break;
	case OPTION_RING_BYTES:
		options->ring_bytes = parse_number(argument, RING_BYTES_MAX, state, "ring size");
		if (options->ring_bytes < RING_BYTES_MIN || (options->ring_bytes & (options->ring_bytes - 1)))
			argp_error(state, "ring size '%s' is not a power of two of at least %d", argument,
				   RING_BYTES_MIN);
		break;
	case ARGP_KEY_ARGS:
		options->command = state->argv + state->next;
		break;
	case ARGP_KEY_END:
		if (!options->command && !options->process)
			argp_error(state, "nothing to record: name a command (-- COMMAND ...) or a process (-p PID)");
		if (options->command && options->process)
			argp_error(state, "a command and a process (-p) at once: choose one");
		if (options->cgroup && options->process)
			argp_error(state, "--cgroup moves only a command that is started here, not a running process");
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

void options_parse(struct options *options, int argc, char **argv)
{
	static const struct argp argp = {
		.options = argp_options,
		.parser = parse_option,
		.args_doc = "-- COMMAND [ARGUMENT...]\n-p PID",
		.doc = documentation,
	};

	*options = (struct options){.layer_vfs = true, .layer_block = true, .ring_bytes = RING_BYTES_DEFAULT};
	argp_err_exit_status = EXIT_USAGE;
	/* In order: what follows the command's name belongs to the command. */
	argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, options);
}

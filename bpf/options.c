// SPDX-License-Identifier: Apache-2.0
/*
 * Turns the command line of flextrace-record into struct options.
 */
#include "options.h"

#include <argp.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "cleanup.h"
#include "losses.h"
#include "names.h"
#include "quantity.h"
#include "ring_event.h"
#include "ring_plan.h"
#include "topology.h"

enum {
	RING_BYTES_MAX = 1 << 30,
	TRACE_BYTES_MIN = 1 << 20,
	FILES_DEFAULT = 1 << 20,
	FILES_MAX = 1 << 24,
};

/* What one call sends at once: a rename two directories and two names before its records, each event behind 8 bytes. */
_Static_assert(RING_BYTES_MIN > 4 * (sizeof(struct ring_name) + 8) + 2 * (TRACE_RECORD_BYTES + 8),
	       "the smallest ring holds any call");

enum option_key {
	OPTION_LAYER = 0x100,
	OPTION_IN_CGROUP,
	OPTION_DEVICE,
	OPTION_PATH,
	OPTION_MIN_SIZE,
	OPTION_MAX_TIME,
	OPTION_MAX_SIZE,
	OPTION_CGROUP,
	OPTION_RING_BYTES,
	OPTION_MAX_FILES,
	OPTION_DRY_RUN,
	OPTION_SURVEY,
	OPTION_INTERMEDIATE,
};

const char *argp_program_version = "flextrace-record " FLEXTRACE_VERSION;

static const char documentation[] =
	"Record the I/O of a command and everything it starts, of a running process with its threads and children, or of a control group, at the VFS layer (operations on files) and the block layer (requests of devices).\v"
	"BYTES may have K, M, G or T behind it; TIME ns, us, ms, s, m or h.\n"
	"\n"
	"The command's exit status is passed on, if it is not 0. Otherwise: 0 ok, 1 failed, 2 usage, 3 records were lost.\n"
	"Ctrl-C ends a recording cleanly; it reaches the command too. --max-time and --max-size end the recording and nothing else: the command goes on, and its end is waited for, without cost for it.";

static const struct argp_option argp_options[] = {
	{0, 0, 0, 0, "What to record:", 1},
	{"process", 'p', "PID", 0, "a running process, with its threads and children", 1},
	{"in-cgroup", OPTION_IN_CGROUP, "DIRECTORY", 0,
	 "all tasks of this control group (version 1 or 2) and of those below it, also those that enter it later", 1},
	{"layer", OPTION_LAYER, "LAYER", 0, "vfs, block or both (default: both)", 1},
	{0, 0, 0, 0, "What to leave out (operations that are left out are counted):", 2},
	{"device", OPTION_DEVICE, "DEVICE", 0,
	 "all but this block device, a path or MAJOR:MINOR: requests to it, and operations on files of file systems that lie on it, its partitions, or what is stacked on them, loop devices included, when recording begins",
	 2},
	{"path", OPTION_PATH, "PREFIX", 0,
	 "operations on all files but those below this directory, or this file; sync, which is on all, stays", 2},
	{"min-size", OPTION_MIN_SIZE, "BYTES", 0, "reads and writes that ask for less", 2},
	{0, 0, 0, 0, "When to end:", 3},
	{"max-time", OPTION_MAX_TIME, "TIME", 0, "after this time", 3},
	{"max-size", OPTION_MAX_SIZE, "BYTES", 0, "before the trace file gets larger than this", 3},
	{0, 0, 0, 0, "Where to:", 4},
	{"output", 'o', "FILE", 0, "trace file (default: COMMAND-DATE-TIME.iotrace)", 4},
	{"force", 'f', 0, 0, "overwrite FILE", 4},
	{"quiet", 'q', 0, 0, "say nothing but warnings and errors", 4},
	{0, 0, 0, 0, "How:", 5},
	{"cgroup", OPTION_CGROUP, "DIRECTORY", 0, "start the command in this memory control group", 5},
	{"ring-bytes", OPTION_RING_BYTES, "BYTES", 0,
	 "size of the ring buffer of each CPU, a power of two, 32K or more (default: 16M, or less where all would take more than 1G or a sixteenth of the memory); of a CPU that is not online when recording begins a 64th, or less",
	 5},
	{"max-files", OPTION_MAX_FILES, "N", 0,
	 "how many files can be told apart (default: 1048576); operations on further ones are lost, and counted", 5},
	{"dry-run", OPTION_DRY_RUN, 0, 0, "say what would be recorded, and how, and load the programs; record nothing",
	 5},
	{"survey", OPTION_SURVEY, 0, 0,
	 "say as JSON which programs this kernel takes and what is lost without the others (flextrace doctor)", 5},
	{"intermediate", OPTION_INTERMEDIATE, 0, OPTION_HIDDEN, 0, 5},
	{0},
};

/* Ends with what is wrong with the command line, as `flextrace record` says it, which hands its options over. */
__attribute__((format(printf, 1, 2), noreturn)) static void refuse(const char *format, ...)
{
	va_list arguments;

	fputs("flextrace record: ", stderr);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputs(" (flextrace record --help)\n", stderr);
	exit(EXIT_USAGE);
}

static uint64_t parse_bytes(const char *text, uint64_t min, uint64_t max, const char *what)
{
	uint64_t bytes = 0;
	if (!quantity_bytes(text, &bytes) || bytes < min || bytes > max)
		refuse("%s '%s' is not a size from %llu to %llu bytes such as 65536, 64K or 1.5M", what, text,
		       (unsigned long long)min, (unsigned long long)max);
	return bytes;
}

static int parse_number(const char *text, int max, const char *what)
{
	char *end = NULL;
	long long number = strtoll(text, &end, 10);
	if (end == text || *end || number < 1 || number > max)
		refuse("%s '%s' is not a number from 1 to %d", what, text, max);
	return number;
}

static uint32_t parse_device(const char *text)
{
	struct stat node;
	unsigned int device_major, device_minor;
	char rest;
	if (sscanf(text, "%u:%u%c", &device_major, &device_minor, &rest) == 2) {
		char path[64];
		snprintf(path, sizeof(path), "/sys/dev/block/%u:%u", device_major, device_minor);
		if (access(path, F_OK))
			refuse("there is no block device %s (see lsblk)", text);
		return device_number(device_major, device_minor);
	}
	if (stat(text, &node))
		refuse("cannot find device '%s': %s", text, strerror(errno));
	else if (!S_ISBLK(node.st_mode))
		refuse("'%s' is not a block device: give a path such as /dev/sda1, or MAJOR:MINOR (see lsblk)", text);
	return device_number(major(node.st_rdev), minor(node.st_rdev));
}

/*
 * Paths in a trace have no symbolic links, so the longest part of the path that exists is freed of them; the rest may be
 * made by the program.
 */
static int resolve(char *path, char *prefix)
{
	char existing[PATH_MAX];
	char *rest = path + strlen(path);
	for (;;) {
		char kept = *rest;
		*rest = '\0';
		bool exists = realpath(*path ? path : "/", existing);
		*rest = kept;
		if (exists)
			return snprintf(prefix, PATH_MAX, "%s%s", strcmp(existing, "/") ? existing : "", rest);
		do
			rest--;
		while (rest > path && *rest != '/');
	}
}

static void parse_prefix(const char *text, char *prefix)
{
	char directory[PATH_MAX];
	_cleanup_free_ char *path = getcwd(directory, sizeof(directory)) ? names_join(directory, text) : NULL;
	if (!path || !*text)
		refuse("path '%s' cannot be used", text);
	int bytes = resolve(path, prefix);
	if (bytes >= FILTER_PATH_BYTES_MAX)
		refuse("path '%s' is longer than %d bytes", text, FILTER_PATH_BYTES_MAX - 1);
	if (bytes == 0)
		refuse("path '%s' leaves nothing out: leave out --path", text);
}

static void parse_group(struct options *options, char *directory)
{
	options->group_path = directory;
	int error = control_group_find(&options->group, directory);
	if (error == -EINVAL)
		refuse("'%s' is not the directory of a control group, such as /sys/fs/cgroup/system.slice", directory);
	else if (error)
		refuse("cannot find control group '%s': %s", directory, strerror(-error));
}

static void parse_filter(struct options *options, int key, char *argument)
{
	switch (key) {
	case OPTION_DEVICE:
		options->device_name = argument;
		options->device = parse_device(argument);
		break;
	case OPTION_PATH:
		parse_prefix(argument, options->path_prefix);
		break;
	default:
		options->size_bytes_min = parse_bytes(argument, 1, UINT32_MAX, "smallest size");
	}
}

/* What each CPU may have lost, by kind, and what every device is, is told at the end of a trace, whatever its limit. */
static void parse_limit(struct options *options, const char *text)
{
	int cpus = libbpf_num_possible_cpus();
	_cleanup_topology_ struct topology topology = {};
	topology_scan(&topology);
	options->trace_end_bytes = losses_bytes_max(cpus > 0 ? cpus : 1) + topology_json_bytes_max(&topology);
	uint64_t bytes_min = writer_limit_min(options->trace_end_bytes);
	options->trace_bytes_max =
		parse_bytes(text, bytes_min > TRACE_BYTES_MIN ? bytes_min : TRACE_BYTES_MIN, INT64_MAX, "largest size");
}

static void check(const struct options *options)
{
	int targets = !!options->command + !!options->process + !!options->group_path;
	if (!targets && !options->survey)
		refuse("nothing to record: name a command (-- COMMAND ...), a process (-p PID) or a control group (--in-cgroup DIRECTORY)");
	if (targets > 1)
		refuse("a command, a process (-p) and a control group (--in-cgroup) at once: choose one");
	if (options->cgroup && !options->command)
		refuse("--cgroup moves only a command that is started here, not a running process");
	if (!options->layer_vfs && (*options->path_prefix || options->size_bytes_min))
		refuse("--path and --min-size leave out operations on files, which --layer block does not record");
}

static error_t parse_option(int key, char *argument, struct argp_state *state)
{
	struct options *options = state->input;

	switch (key) {
	case 'p':
		options->process = parse_number(argument, INT32_MAX, "process");
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
	case OPTION_DRY_RUN:
		options->dry_run = true;
		break;
	case OPTION_SURVEY:
		options->survey = true;
		break;
	case OPTION_INTERMEDIATE:
		options->intermediate = true;
		break;
	case OPTION_LAYER:
		options->layer_vfs = !strcmp(argument, "vfs") || !strcmp(argument, "both");
		options->layer_block = !strcmp(argument, "block") || !strcmp(argument, "both");
		if (!options->layer_vfs && !options->layer_block)
			refuse("layer '%s' is unknown: choose vfs, block or both", argument);
		break;
	case OPTION_IN_CGROUP:
		parse_group(options, argument);
		break;
	case OPTION_DEVICE:
	case OPTION_PATH:
	case OPTION_MIN_SIZE:
		parse_filter(options, key, argument);
		break;
	case OPTION_MAX_TIME:
		if (!quantity_duration_ns(argument, &options->duration_ns) || !options->duration_ns)
			refuse("largest time '%s' is not one such as 30s, 500ms or 5m", argument);
		break;
	case OPTION_MAX_SIZE:
		parse_limit(options, argument);
		break;
	case OPTION_CGROUP:
		options->cgroup = argument;
		break;
	case OPTION_RING_BYTES:
		options->ring_bytes = parse_bytes(argument, RING_BYTES_MIN, RING_BYTES_MAX, "ring size");
		if (options->ring_bytes & (options->ring_bytes - 1))
			refuse("ring size '%s' is not a power of two", argument);
		break;
	case OPTION_MAX_FILES:
		options->files_max = parse_number(argument, FILES_MAX, "number of files");
		break;
	case ARGP_KEY_ARGS:
		options->command = state->argv + state->next;
		break;
	case ARGP_KEY_END:
		check(options);
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
		.args_doc = "-- COMMAND [ARGUMENT...]\n-p PID\n--in-cgroup DIRECTORY\n--survey",
		.doc = documentation,
	};

	*options = (struct options){.layer_vfs = true, .layer_block = true, .files_max = FILES_DEFAULT};
	argp_err_exit_status = EXIT_USAGE;
	/* In order: what follows the command's name belongs to the command. */
	argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, options);
}

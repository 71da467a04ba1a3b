// SPDX-License-Identifier: Apache-2.0
// Turns a command line into what is to be replayed, where and how.
#include <argp.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "replayer/engine/arguments.h"
#include "replayer/engine/data_fill.h"
#include "replayer/engine/engine_choice.h"
#include "replayer/engine/ring.h"

enum option_key {
	KEY_DIRECTORY_DESCRIPTOR = 0x100,
	KEY_TIMING,
	KEY_ORDER,
	KEY_SPEED,
	KEY_LOOP,
	KEY_MAX_SECONDS,
	KEY_CACHE,
	KEY_MEMORY_GROUP,
	KEY_PHASE,
	KEY_KEEP_IMAGE,
	KEY_FORCE_SPACE,
	KEY_INTERVAL_MS,
	KEY_ENGINE,
	KEY_PROCESSORS,
	KEY_DEPTH,
	KEY_LEAD,
	KEY_LATE,
	KEY_LATE_LIMIT_MS,
	KEY_DIRECT,
	KEY_SYNC,
	KEY_COMPUTING,
	KEY_THINK_BURST_US,
	KEY_RECORDING_US,
	KEY_OTHERS,
	KEY_OTHERS_BURST_US,
	KEY_DATA,
	KEY_LAYOUT,
	KEY_DEVICE,
	KEY_WRITE,
	KEY_CONFIRM,
};

enum { BURST_US_MIN = 1, BURST_US_MAX = 1000 * 1000 };

const char *const timings[] = {"asap", "think", "recorded", NULL};
const char *const orders[] = {"resource", "recorded", "thread", NULL};
const char *const caches[] = {"recorded", "warm", "cold", "keep", NULL};
const char *const late_policies[] = {"catch-up", "skip", "slip", NULL};
const char *const directs[] = {"recorded", "on", "off", NULL};
const char *const syncs[] = {"recorded", "off", "dsync", "sync", NULL};
const char *const computings[] = {"recorded", "off", NULL};
const char *const layouts[] = {"any", "recorded", NULL};
const char *const phases[] = {"all", "prepare", "run", "remove", NULL};

static const struct argp_option options[] = {
	{NULL, 0, NULL, 0, "What the replay repeats:", 1},
	{"timing", KEY_TIMING, "HOW", 0,
	 "asap: no waiting (default); think: each thread waits its recorded think time after a completion; recorded: every operation at its recorded time",
	 1},
	{"order", KEY_ORDER, "HOW", 0,
	 "What an operation waits for in other threads. resource: for what had ended before it started and has to do with the same files or names, or that its thread was woken after (default for recordings); recorded: for all that had ended before (default for foreign traces); thread: for nothing (default for synthetic ones)",
	 1},
	{"computing", KEY_COMPUTING, "HOW", 0,
	 "think: a thread has a processor in its think times for as long as when recorded, and computes (recorded, default), or it only sleeps (off)",
	 1},
	{"think-burst-us", KEY_THINK_BURST_US, "US", 0,
	 "think: who computes does so for about US at a time, and sleeps in between (default: sleeps once)", 1},
	{"recording-us", KEY_RECORDING_US, "US", 0,
	 "think: think US less before each operation, which recording and entering the kernel took (default: nothing)",
	 1},
	{"others", KEY_OTHERS, "N", 0, "think: keep N processors busy meanwhile, such as 0.3 (default: none)", 1},
	{"others-burst-us", KEY_OTHERS_BURST_US, "US", 0, "For --others: for US at a time (default 20)", 1},
	{"speed", KEY_SPEED, "FACTOR", 0, "Divide recorded times by FACTOR (default 1)", 1},
	{"lead", KEY_LEAD, "N", 0,
	 "asap: no thread begins more than about N operations beyond the slowest (default: every thread as it can)", 1},
	{"late", KEY_LATE, "POLICY", 0,
	 "What --timing recorded does with operations behind their times: catch-up (default): begin at once; skip: leave out requests beyond --late-limit-ms; slip: move all later times",
	 1},
	{"late-limit-ms", KEY_LATE_LIMIT_MS, "MS", 0, "For --late skip (default 10)", 1},
	{"loop", KEY_LOOP, NULL, 0, "Begin again at the end, until stopped", 1},
	{"max-seconds", KEY_MAX_SECONDS, "S", 0, "Stop after S seconds", 1},
	{NULL, 0, NULL, 0, "How it does it:", 2},
	{"engine", KEY_ENGINE, "NAME", 0,
	 "auto (default): io_uring for what AIO or io_uring made, where requests of a thread of another tool's trace overlap, and with --depth above 1, else sync; sync: calls, one at a time per thread; io_uring: for all, requests of a thread overlap as recorded; null: waits for times and order, does nothing, needs no directory",
	 2},
	{"depth", KEY_DEPTH, "N", 0,
	 "io_uring: at most N requests in flight per thread (default: as recorded, or 1 for synthetic traces)", 2},
	{"processors", KEY_PROCESSORS, "N", 0,
	 "Spin while waiting as if there were N processors at most, as where a control group gives no more (default: as many as it may run on)",
	 2},
	{"direct", KEY_DIRECT, "HOW", 0, "O_DIRECT: recorded (default), on or off", 2},
	{"sync", KEY_SYNC, "HOW", 0,
	 "O_SYNC, O_DSYNC, fsync and its kin: recorded (default), off, or every write by O_DSYNC (dsync) or O_SYNC (sync) and fsync and its kin as recorded",
	 2},
	{NULL, 0, NULL, 0, "Where it begins:", 3},
	{"directory", 'd', "DIR", 0, "Directory for the files of the replay; made if missing", 3},
	{"directory-descriptor", KEY_DIRECTORY_DESCRIPTOR, "N", 0,
	 "Of --directory, handed down by who has it locked, from one phase to the next (default: locks it by itself)",
	 3},
	{"cache", KEY_CACHE, "STATE", 0,
	 "Page cache at the start: recorded (default), warm (everything), cold (nothing) or keep (as it is)", 3},
	{"memory-group", KEY_MEMORY_GROUP, "DIR", 0,
	 "Join this control group when the trace is read: its limit then bounds the page cache, and not what the engine keeps of the trace",
	 3},
	{"phase", KEY_PHASE, "PHASE", 0,
	 "all (default), prepare (lay out the files), run (files are there), or remove (them; needs no trace)", 3},
	{"keep-image", KEY_KEEP_IMAGE, NULL, 0, "Leave the files for the next replay", 3},
	{"force-space", KEY_FORCE_SPACE, NULL, 0, "Begin although the space seems too little", 3},
	{"data", KEY_DATA, "KIND", 0,
	 "Data of files and writes: random (default), or compressible[:PERCENT] to that share of its size (50)", 3},
	{"layout", KEY_LAYOUT, "HOW", 0,
	 "Blocks of the files: any (default), or recorded: in the order of their places where the trace knows them (ext4, btrfs, xfs)",
	 3},
	{NULL, 0, NULL, 0, "Onto a block device:", 4},
	{"device", KEY_DEVICE, "DEVICE", 0, "Takes the place of the trace's block device; nobody else may use it", 4},
	{"write", KEY_WRITE, NULL, 0, "Do the trace's writes on it as well, which destroys what is there", 4},
	{"confirm", KEY_CONFIRM, "ID", 0, "Its serial number, or, without one, its size in bytes; needed for --write",
	 4},
	{NULL, 0, NULL, 0, "What it prints:", 5},
	{"interval-ms", KEY_INTERVAL_MS, "N", 0, "A JSON line with bytes and requests every N ms, before the result",
	 5},
	{0},
};

static int parse_choice(const char *option, const char *text, const char *const *choices, struct argp_state *state)
{
	for (int i = 0; choices[i]; i++) {
		if (!strcmp(text, choices[i]))
			return i;
	}
	argp_error(state, "--%s does not know '%s'", option, text);
	return 0;
}

static double parse_positive(const char *option, const char *text, struct argp_state *state)
{
	char *end;
	double value = strtod(text, &end);

	if (end == text || *end || !(value > 0) || !isfinite(value) || value > 1e9)
		argp_error(state, "--%s needs a positive number up to 1e9, not '%s'", option, text);
	return value;
}

static uint32_t parse_count(const char *option, const char *text, uint32_t count_max, struct argp_state *state)
{
	double value = parse_positive(option, text, state);

	if (value != floor(value) || value > count_max)
		argp_error(state, "--%s needs a whole number up to %u, not '%s'", option, count_max, text);
	return (uint32_t)value;
}

static uint64_t parse_burst(const char *option, const char *text, struct argp_state *state)
{
	double burst_us = parse_positive(option, text, state);

	if (burst_us < BURST_US_MIN || burst_us > BURST_US_MAX)
		argp_error(state, "--%s needs %d to %d microseconds, not '%s'", option, BURST_US_MIN, BURST_US_MAX,
			   text);
	return (uint64_t)(burst_us * 1e3);
}

static error_t parse_repeated(int key, char *text, struct arguments *arguments, struct argp_state *state)
{
	switch (key) {
	case KEY_TIMING:
		arguments->run.timing = (enum timing)parse_choice("timing", text, timings, state);
		return 0;
	case KEY_ORDER:
		arguments->order = parse_choice("order", text, orders, state);
		return 0;
	case KEY_COMPUTING:
		arguments->run.computing = parse_choice("computing", text, computings, state) == COMPUTING_RECORDED;
		return 0;
	case KEY_THINK_BURST_US:
		arguments->run.think_burst_ns = parse_burst("think-burst-us", text, state);
		return 0;
	case KEY_RECORDING_US:
		arguments->run.recording_ns = (uint64_t)(parse_positive("recording-us", text, state) * 1e3);
		return 0;
	case KEY_OTHERS:
		arguments->run.others = parse_positive("others", text, state);
		if (arguments->run.others > OTHERS_MAX)
			argp_error(state, "--others can keep %d processors busy, not '%s'", OTHERS_MAX, text);
		return 0;
	case KEY_OTHERS_BURST_US:
		arguments->run.others_burst_ns = parse_burst("others-burst-us", text, state);
		return 0;
	case KEY_SPEED:
		arguments->run.speed = parse_positive("speed", text, state);
		return 0;
	case KEY_LEAD:
		arguments->run.lead = parse_count("lead", text, LEAD_MAX, state);
		return 0;
	case KEY_LATE:
		arguments->run.late = (enum late_policy)parse_choice("late", text, late_policies, state);
		return 0;
	case KEY_LATE_LIMIT_MS:
		arguments->run.late_limit_ns = (uint64_t)(parse_positive("late-limit-ms", text, state) * 1e6);
		return 0;
	case KEY_LOOP:
		arguments->run.loop = true;
		return 0;
	case KEY_MAX_SECONDS:
		arguments->run.max_seconds = parse_positive("max-seconds", text, state);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static error_t parse_manner(int key, char *text, struct arguments *arguments, struct argp_state *state)
{
	switch (key) {
	case KEY_ENGINE:
		arguments->run.engine = (enum engine)parse_choice("engine", text, engine_names, state);
		return 0;
	case KEY_DEPTH:
		arguments->run.depth = parse_count("depth", text, RING_DEPTH_MAX, state);
		return 0;
	case KEY_PROCESSORS:
		arguments->run.processors_max = parse_count("processors", text, INT_MAX, state);
		return 0;
	case KEY_DIRECT:
		arguments->direct = parse_choice("direct", text, directs, state);
		return 0;
	case KEY_SYNC:
		arguments->sync = parse_choice("sync", text, syncs, state);
		return 0;
	case KEY_INTERVAL_MS:
		arguments->run.interval_ns = (uint64_t)(parse_positive("interval-ms", text, state) * 1e6);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static error_t parse_beginning(int key, char *text, struct arguments *arguments, struct argp_state *state)
{
	switch (key) {
	case 'd':
		arguments->directory = text;
		return 0;
	case KEY_DIRECTORY_DESCRIPTOR:
		arguments->directory_descriptor = (int)parse_count("directory-descriptor", text, INT_MAX, state);
		return 0;
	case KEY_CACHE:
		arguments->cache = parse_choice("cache", text, caches, state);
		return 0;
	case KEY_MEMORY_GROUP:
		arguments->memory_group = text;
		return 0;
	case KEY_PHASE:
		arguments->phase = parse_choice("phase", text, phases, state);
		return 0;
	case KEY_KEEP_IMAGE:
		arguments->keep_image = true;
		return 0;
	case KEY_FORCE_SPACE:
		arguments->force_space = true;
		return 0;
	case KEY_DATA:
		if (data_parse(text) < 0)
			argp_error(state,
				   "--data does not know '%s': give random, or compressible[:PERCENT], from 1 to 100",
				   text);
		arguments->data_percent = (unsigned int)data_parse(text);
		return 0;
	case KEY_LAYOUT:
		arguments->layout = parse_choice("layout", text, layouts, state);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static error_t parse_device(int key, char *text, struct arguments *arguments, struct argp_state *state)
{
	switch (key) {
	case KEY_DEVICE:
		arguments->device = text;
		return 0;
	case KEY_WRITE:
		arguments->write = true;
		return 0;
	case KEY_CONFIRM:
		arguments->confirm = text;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static void check_together(const struct arguments *arguments, const struct argp_state *state)
{
	bool null = arguments->run.engine == ENGINE_NULL;
	bool removes = arguments->phase == PHASE_REMOVE;

	if (!arguments->trace && !removes)
		argp_error(state, "no trace given");
	if (!arguments->directory && (removes || (!arguments->device && !null)))
		argp_error(state, "no --directory given");
	if (arguments->phase == PHASE_PREPARE && null)
		argp_error(state, "--engine null needs no files: there is nothing to prepare");
	if (arguments->run.depth && (arguments->run.engine == ENGINE_SYNC || null))
		argp_error(state, "--depth is for --engine io_uring");
	if (arguments->run.late != LATE_CATCH_UP && arguments->run.timing != TIMING_RECORDED)
		argp_error(state, "--late is for --timing recorded: nothing else has times to be late for");
	if (arguments->run.others > 0 && (arguments->run.timing != TIMING_THINK || !arguments->run.computing))
		argp_error(state, "--others is for --timing think with --computing recorded");
	if (arguments->run.recording_ns && arguments->run.timing != TIMING_THINK)
		argp_error(state, "--recording-us is for --timing think: the others have no think times");
	if (arguments->run.lead && arguments->run.timing != TIMING_ASAP)
		argp_error(state, "--lead is for --timing asap: the others have times that threads keep");
	if ((arguments->write || arguments->confirm) && !arguments->device)
		argp_error(state, "--write and --confirm are for a --device");
	if (arguments->write != !!arguments->confirm)
		argp_error(state, "--write and --confirm go together");
}

static error_t parse_option(int key, char *text, struct argp_state *state)
{
	/* By the groups of the options. */
	static error_t (*const groups[])(int, char *, struct arguments *, struct argp_state *) = {
		parse_repeated, parse_manner, parse_beginning, parse_device};
	struct arguments *arguments = state->input;

	switch (key) {
	case ARGP_KEY_ARG:
		if (arguments->trace)
			argp_error(state, "more than one trace: '%s' and '%s'", arguments->trace, text);
		arguments->trace = text;
		return 0;
	case ARGP_KEY_END:
		check_together(arguments, state);
		return 0;
	default:
		break;
	}
	for (size_t i = 0; i < sizeof(groups) / sizeof(*groups); i++) {
		error_t error = groups[i](key, text, arguments, state);

		if (error != ARGP_ERR_UNKNOWN)
			return error;
	}
	return ARGP_ERR_UNKNOWN;
}

static const struct argp parser = {
	.options = options,
	.parser = parse_option,
	.args_doc = "TRACE",
	.doc = "Runs a trace (NAME.iotrace) in a directory and prints what it took as JSON.\v"
	       "Touches nothing but files of its own making in that directory, and the device, if one is named. SIGINT, SIGTERM and SIGHUP end the replay with its result. Exit status: 0 ok, 1 failed, 2 usage, 3 the result is not trustworthy (it says why).",
};

const char *argp_program_version = "flextrace-replay " FLEXTRACE_VERSION;

void arguments_parse(struct arguments *arguments, int count, char **values)
{
	*arguments = (struct arguments){
		.directory_descriptor = -1,
		.order = -1,
		.data_percent = DATA_RANDOM_PERCENT,
		.run = {.speed = 1, .computing = true, .late_limit_ns = 10 * 1000 * 1000, .others_burst_ns = 20 * 1000},
	};
	argp_err_exit_status = EXIT_USAGE;
	argp_parse(&parser, count, values, 0, NULL, arguments);
}

// SPDX-License-Identifier: Apache-2.0
// Turns a command line into a replay: trace in, operations in a directory, result document on stdout.
#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "replayer/engine/cache_state.h"
#include "replayer/engine/data_fill.h"
#include "replayer/engine/message.h"
#include "replayer/engine/result.h"

enum { EXIT_USAGE = 2, EXIT_NOT_TRUSTWORTHY = 3 };

enum option_key {
	KEY_TIMING = 0x100,
	KEY_ORDER,
	KEY_SPEED,
	KEY_LOOP,
	KEY_MAX_SECONDS,
	KEY_CACHE,
	KEY_PHASE,
	KEY_KEEP_IMAGE,
	KEY_FORCE_SPACE,
	KEY_INTERVAL_MS,
	KEY_DATA,
	KEY_DEVICE,
	KEY_WRITE,
	KEY_CONFIRM,
};

static const char *const timings[] = {"asap", "think", "recorded", NULL};
static const char *const orders[] = {"recorded", "thread", NULL};
static const char *const caches[] = {"recorded", "warm", "cold", "keep", NULL};
static const char *const phases[] = {"all", "prepare", "run", NULL};

enum phase { PHASE_ALL, PHASE_PREPARE, PHASE_RUN };
enum order_choice { ORDER_RECORDED, ORDER_THREAD };

struct arguments {
	const char *trace;
	const char *directory;
	struct run_options run;
	int order; /* enum order_choice, -1 = as the trace needs */
	int cache;
	int phase;
	unsigned int data_percent;
	const char *device;
	const char *confirm;
	bool write;
	bool keep_image;
	bool force_space;
};

static const struct argp_option options[] = {
	{NULL, 0, NULL, 0, "What the replay repeats:", 1},
	{"timing", KEY_TIMING, "HOW", 0,
	 "asap: no waiting (default); think: each thread waits its recorded think time after a completion; recorded: "
	 "every "
	 "operation at its recorded time",
	 1},
	{"order", KEY_ORDER, "HOW", 0,
	 "recorded: an operation waits for all that had ended before it started (default for recorded traces); thread: "
	 "only "
	 "each thread's own order (default for synthetic ones)",
	 1},
	{"speed", KEY_SPEED, "FACTOR", 0, "Divide recorded times by FACTOR (default 1)", 1},
	{"loop", KEY_LOOP, NULL, 0, "Begin again at the end, until stopped", 1},
	{"max-seconds", KEY_MAX_SECONDS, "S", 0, "Stop after S seconds", 1},
	{NULL, 0, NULL, 0, "Where it begins:", 2},
	{"directory", 'd', "DIR", 0, "Directory for the files of the replay; made if missing", 2},
	{"cache", KEY_CACHE, "STATE", 0,
	 "Page cache at the start: recorded (default), warm (everything), cold (nothing) or keep (as it is)", 2},
	{"phase", KEY_PHASE, "PHASE", 0, "all (default), prepare (lay out the files), or run (files are there)", 2},
	{"keep-image", KEY_KEEP_IMAGE, NULL, 0, "Leave the files for the next replay", 2},
	{"force-space", KEY_FORCE_SPACE, NULL, 0, "Begin although the space seems too little", 2},
	{"data", KEY_DATA, "KIND", 0,
	 "Data of files and writes: random (default), or compressible[:PERCENT] to that share of its size (50)", 2},
	{NULL, 0, NULL, 0, "Onto a block device:", 3},
	{"device", KEY_DEVICE, "DEVICE", 0, "Takes the place of the trace's block device; nobody else may use it", 3},
	{"write", KEY_WRITE, NULL, 0, "Do the trace's writes on it as well, which destroys what is there", 3},
	{"confirm", KEY_CONFIRM, "ID", 0, "Its serial number, or, without one, its size in bytes; needed for --write",
	 3},
	{NULL, 0, NULL, 0, "What it prints:", 4},
	{"interval-ms", KEY_INTERVAL_MS, "N", 0, "A JSON line with bytes and requests every N ms, before the result",
	 4},
	{0},
};

static atomic_bool stop;
static atomic_bool stopped_by_signal;

static void on_signal(int number)
{
	(void)number;
	atomic_store(&stopped_by_signal, true);
	atomic_store(&stop, true);
}

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
		argp_error(state, "--%s needs a positive number, not '%s'", option, text);
	return value;
}

static error_t parse_device_option(int key, char *text, struct arguments *arguments)
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

static void check_place(const struct arguments *arguments, const struct argp_state *state)
{
	if (!arguments->directory && !arguments->device)
		argp_error(state, "no --directory given");
	if ((arguments->write || arguments->confirm) && !arguments->device)
		argp_error(state, "--write and --confirm are for a --device");
	if (arguments->write != !!arguments->confirm)
		argp_error(state, "--write and --confirm go together");
}

static error_t parse_option(int key, char *text, struct argp_state *state)
{
	struct arguments *arguments = state->input;

	switch (key) {
	case KEY_TIMING:
		arguments->run.timing = (enum timing)parse_choice("timing", text, timings, state);
		return 0;
	case KEY_ORDER:
		arguments->order = parse_choice("order", text, orders, state);
		return 0;
	case KEY_SPEED:
		arguments->run.speed = parse_positive("speed", text, state);
		return 0;
	case KEY_LOOP:
		arguments->run.loop = true;
		return 0;
	case KEY_MAX_SECONDS:
		arguments->run.max_seconds = parse_positive("max-seconds", text, state);
		return 0;
	case 'd':
		arguments->directory = text;
		return 0;
	case KEY_CACHE:
		arguments->cache = parse_choice("cache", text, caches, state);
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
	case KEY_INTERVAL_MS:
		arguments->run.interval_ns = (uint64_t)(parse_positive("interval-ms", text, state) * 1e6);
		return 0;
	case KEY_DATA:
		if (data_parse(text) < 0)
			argp_error(state, "--data does not know '%s'", text);
		arguments->data_percent = (unsigned int)data_parse(text);
		return 0;
	case ARGP_KEY_ARG:
		if (arguments->trace)
			argp_error(state, "more than one trace: '%s' and '%s'", arguments->trace, text);
		arguments->trace = text;
		return 0;
	case ARGP_KEY_END:
		if (!arguments->trace)
			argp_error(state, "no trace given");
		check_place(arguments, state);
		return 0;
	default:
		return parse_device_option(key, text, arguments);
	}
}

static const struct argp parser = {
	.options = options,
	.parser = parse_option,
	.args_doc = "TRACE",
	.doc = "Runs a trace (NAME.iotrace) in a directory and prints what it took as JSON.\v"
	       "Touches nothing but files of its own making in that directory, and the device, if one is named. SIGINT "
	       "and SIGTERM end the replay with "
	       "its "
	       "result. Exit status: 0 ok, 1 failed, 2 usage, 3 the result is not trustworthy (it says why).",
};

const char *argp_program_version = "flextrace-replay " FLEXTRACE_VERSION;

static void watch_signals(void)
{
	/* No SA_RESTART: the waiting of the main thread has to end. */
	struct sigaction action = {.sa_handler = on_signal};

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
}

static int choose_order(struct arguments *arguments, const struct trace *trace)
{
	bool untimed = trace->header->flags & TRACE_UNTIMED;

	if (arguments->order < 0)
		arguments->order = untimed ? ORDER_THREAD : ORDER_RECORDED;
	arguments->run.recorded_order = arguments->order == ORDER_RECORDED;
	if (untimed && arguments->run.timing != TIMING_ASAP) {
		complain("%s is synthetic and has no times to repeat: use --timing asap", trace->path);
		return -EINVAL;
	}
	if (untimed && arguments->run.recorded_order) {
		complain("%s is synthetic and has no order across threads: use --order thread", trace->path);
		return -EINVAL;
	}
	return 0;
}

/* Has the image ready. */
static int prepare(const struct arguments *arguments, const struct file_table *table, struct image *image)
{
	int error = 0;

	if (arguments->phase == PHASE_RUN) {
		error = image_check(image, table);
		return error ? error : image_remove_created(image, table);
	}
	if (!arguments->force_space)
		error = image_check_space(image, table);
	if (!error)
		error = image_lay_out(image, table);
	if (error == -EINTR)
		complain("interrupted while laying out %s", image->path);
	/* What was made for this replay goes, unless it is to be kept. */
	bool kept = arguments->keep_image || arguments->phase == PHASE_PREPARE;
	if (error && (image->made_directory || (!kept && image->built_bytes)))
		image_remove(image);
	return error;
}

static int apply_cache(const struct arguments *arguments, const struct trace *trace, const struct file_table *table,
		       const struct image *image, struct result *result)
{
	__attribute__((cleanup(resident_ranges_free))) struct resident_ranges ranges = {0};
	int error = 0;

	if (arguments->cache == CACHE_RECORDED)
		error = resident_ranges_read(&ranges, trace, table);
	if (!error)
		error = cache_apply(image, table, &ranges, (enum cache_state)arguments->cache, &result->cache_report);
	result->ranges_cut = ranges.too_many;
	/* Of a device nothing is cached at the start: its own descriptor has no O_DIRECT, so the checks have read some. */
	if (image->target && arguments->cache != CACHE_KEEP)
		posix_fadvise(image->target->descriptor, 0, 0, POSIX_FADV_DONTNEED);
	return error;
}

static int execute(const struct arguments *arguments, const struct trace *trace, const struct file_table *table,
		   const struct schedule *schedule, struct image *image)
{
	struct result result = {
		.trace = trace,
		.table = table,
		.schedule = schedule,
		.image = image,
		.options = &arguments->run,
		.order = orders[arguments->order],
		.timing = timings[arguments->run.timing],
		.cache = caches[arguments->cache],
		.phase = phases[arguments->phase],
		.stopped = "end",
	};
	struct run run = {.trace = trace,
			  .table = table,
			  .schedule = schedule,
			  .options = &arguments->run,
			  .image = image,
			  .stop = &stop};
	int error = prepare(arguments, table, image);

	if (error)
		return EXIT_FAILURE;
	if (arguments->phase != PHASE_PREPARE) {
		error = apply_cache(arguments, trace, table, image, &result);
		if (!error)
			error = run_all(&run);
		result.run = &run;
		if (atomic_load(&stopped_by_signal))
			result.stopped = "signal";
		else if (atomic_load(&stop))
			result.stopped = "max-seconds";
	}
	bool trusted = !error && result_print(&result);
	run_free(&run);
	if (!arguments->keep_image && arguments->phase != PHASE_PREPARE && image_remove(image))
		return EXIT_FAILURE;
	if (error)
		return EXIT_FAILURE;
	return trusted ? EXIT_SUCCESS : EXIT_NOT_TRUSTWORTHY;
}

static int replay(struct arguments *arguments)
{
	__attribute__((cleanup(trace_close))) struct trace trace = {0};
	__attribute__((cleanup(files_free))) struct file_table table = {0};
	__attribute__((cleanup(schedule_free))) struct schedule schedule = {0};
	__attribute__((cleanup(target_close))) struct target target = {.descriptor = -1};
	__attribute__((cleanup(image_close))) struct image image = {.directory = -1};

	if (trace_open(&trace, arguments->trace))
		return EXIT_FAILURE;
	if (choose_order(arguments, &trace))
		return EXIT_USAGE;
	if (files_read(&table, &trace) || schedule_build(&schedule, &trace))
		return EXIT_FAILURE;
	if (!schedule.count) {
		complain("%s holds no operation: there is nothing to replay", arguments->trace);
		return EXIT_FAILURE;
	}
	if (arguments->run.recorded_order && schedule.thread_count > 1 && schedule_number_intervals(&schedule, &trace))
		return EXIT_FAILURE;
	trace_populate(&trace);
	if (arguments->device && target_open(&target, arguments->device, arguments->write, arguments->confirm))
		return EXIT_FAILURE;
	image = (struct image){.path = arguments->directory,
			       .target = arguments->device ? &target : NULL,
			       .data_percent = arguments->data_percent,
			       .directory = -1,
			       .stop = &stop};
	if (image.target && image_use_target(&image, &table))
		return EXIT_FAILURE;
	if (image_open(&image))
		return EXIT_FAILURE;
	return execute(arguments, &trace, &table, &schedule, &image);
}

int main(int count, char **values)
{
	struct arguments arguments = {.order = -1, .data_percent = DATA_RANDOM_PERCENT, .run = {.speed = 1}};

	argp_err_exit_status = EXIT_USAGE;
	argp_parse(&parser, count, values, 0, NULL, &arguments);
	watch_signals();
	return replay(&arguments);
}

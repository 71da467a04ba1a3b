// SPDX-License-Identifier: Apache-2.0
// Turns a command line into a replay: trace in, operations in a directory, result document on stdout.
#include <argp.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "replayer/engine/cache_state.h"
#include "replayer/engine/engine_choice.h"
#include "replayer/engine/message.h"
#include "replayer/engine/result.h"
#include "replayer/engine/ring.h"

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
	KEY_ENGINE,
	KEY_DEPTH,
	KEY_LATE,
	KEY_LATE_LIMIT_MS,
	KEY_DIRECT,
	KEY_SYNC,
};

static const char *const timings[] = {"asap", "think", "recorded", NULL};
static const char *const orders[] = {"recorded", "thread", NULL};
static const char *const caches[] = {"recorded", "warm", "cold", "keep", NULL};
static const char *const late_policies[] = {"catch-up", "skip", "slip", NULL};
static const char *const directs[] = {"recorded", "on", "off", NULL};
static const char *const syncs[] = {"recorded", "off", NULL};
static const char *const phases[] = {"all", "prepare", "run", NULL};

enum phase { PHASE_ALL, PHASE_PREPARE, PHASE_RUN };
enum order_choice { ORDER_RECORDED, ORDER_THREAD };
enum direct_choice { DIRECT_RECORDED, DIRECT_ON, DIRECT_OFF };
enum sync_choice { SYNC_RECORDED, SYNC_OFF };

struct arguments {
	const char *trace;
	const char *directory;
	struct run_options run;
	int order; /* enum order_choice, -1 = as the trace needs */
	int cache;
	int phase;
	int direct; /* enum direct_choice */
	int sync; /* enum sync_choice */
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
	{"late", KEY_LATE, "POLICY", 0,
	 "What --timing recorded does with operations behind their times: catch-up (default): begin at once; skip: "
	 "leave "
	 "out requests beyond --late-limit-ms; slip: move all later times",
	 1},
	{"late-limit-ms", KEY_LATE_LIMIT_MS, "MS", 0, "For --late skip (default 10)", 1},
	{"loop", KEY_LOOP, NULL, 0, "Begin again at the end, until stopped", 1},
	{"max-seconds", KEY_MAX_SECONDS, "S", 0, "Stop after S seconds", 1},
	{NULL, 0, NULL, 0, "How it does it:", 2},
	{"engine", KEY_ENGINE, "NAME", 0,
	 "auto (default): io_uring where requests of a thread were in flight at once, else sync; sync: calls, one at a "
	 "time per thread; io_uring: requests of a thread overlap as recorded; null: waits for times and order, does "
	 "nothing, needs no directory",
	 2},
	{"depth", KEY_DEPTH, "N", 0,
	 "io_uring: at most N requests in flight per thread (default: as recorded, or 1 for synthetic traces)", 2},
	{"direct", KEY_DIRECT, "HOW", 0, "O_DIRECT: recorded (default), on or off", 2},
	{"sync", KEY_SYNC, "HOW", 0, "O_SYNC, O_DSYNC, fsync and its kin: recorded (default) or off", 2},
	{NULL, 0, NULL, 0, "Where it begins:", 3},
	{"directory", 'd', "DIR", 0, "Directory for the files of the replay; made if missing", 3},
	{"cache", KEY_CACHE, "STATE", 0,
	 "Page cache at the start: recorded (default), warm (everything), cold (nothing) or keep (as it is)", 3},
	{"phase", KEY_PHASE, "PHASE", 0, "all (default), prepare (lay out the files), or run (files are there)", 3},
	{"keep-image", KEY_KEEP_IMAGE, NULL, 0, "Leave the files for the next replay", 3},
	{"force-space", KEY_FORCE_SPACE, NULL, 0, "Begin although the space seems too little", 3},
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

static uint32_t parse_depth(const char *text, struct argp_state *state)
{
	double value = parse_positive("depth", text, state);

	if (value != floor(value) || value > RING_DEPTH_MAX)
		argp_error(state, "--depth needs a whole number up to %d, not '%s'", RING_DEPTH_MAX, text);
	return (uint32_t)value;
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
	case KEY_ENGINE:
		arguments->run.engine = (enum engine)parse_choice("engine", text, engine_names, state);
		return 0;
	case KEY_DEPTH:
		arguments->run.depth = parse_depth(text, state);
		return 0;
	case KEY_LATE:
		arguments->run.late = (enum late_policy)parse_choice("late", text, late_policies, state);
		return 0;
	case KEY_LATE_LIMIT_MS:
		arguments->run.late_limit_ns = (uint64_t)(parse_positive("late-limit-ms", text, state) * 1e6);
		return 0;
	case KEY_DIRECT:
		arguments->direct = parse_choice("direct", text, directs, state);
		return 0;
	case KEY_SYNC:
		arguments->sync = parse_choice("sync", text, syncs, state);
		return 0;
	case ARGP_KEY_ARG:
		if (arguments->trace)
			argp_error(state, "more than one trace: '%s' and '%s'", arguments->trace, text);
		arguments->trace = text;
		return 0;
	case ARGP_KEY_END:
		if (!arguments->trace)
			argp_error(state, "no trace given");
		if (!arguments->directory && arguments->run.engine != ENGINE_NULL)
			argp_error(state, "no --directory given");
		if (arguments->phase == PHASE_PREPARE && arguments->run.engine == ENGINE_NULL)
			argp_error(state, "--engine null needs no files: there is nothing to prepare");
		if (arguments->run.depth &&
		    (arguments->run.engine == ENGINE_SYNC || arguments->run.engine == ENGINE_NULL))
			argp_error(state, "--depth is for --engine io_uring");
		if (arguments->run.late != LATE_CATCH_UP && arguments->run.timing != TIMING_RECORDED)
			argp_error(state, "--late is for --timing recorded: nothing else has times to be late for");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp parser = {
	.options = options,
	.parser = parse_option,
	.args_doc = "TRACE",
	.doc = "Runs a trace (NAME.iotrace) in a directory and prints what it took as JSON.\v"
	       "Touches nothing but files of its own making in that directory. SIGINT and SIGTERM end the replay with "
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
	arguments->run.untimed = untimed;
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

static struct class_choice choose_classes(const struct arguments *arguments)
{
	bool sync_off = arguments->sync == SYNC_OFF;

	return (struct class_choice){
		.kept = (arguments->direct == DIRECT_RECORDED ? CLASS_DIRECT : 0) |
			(sync_off ? 0 : CLASS_SYNC | CLASS_DSYNC),
		.added = arguments->direct == DIRECT_ON ? CLASS_DIRECT : 0,
		.sync_off = sync_off,
	};
}

/* Has the image ready. */
static int prepare(const struct arguments *arguments, const struct file_table *table, struct image *image)
{
	int error = 0;

	if (arguments->run.engine == ENGINE_NULL)
		return 0;
	if (arguments->phase == PHASE_RUN) {
		error = image_check(image, table);
		return error ? error : image_remove_created(image, table);
	}
	if (!arguments->force_space)
		error = image_check_space(image, table);
	if (!error)
		error = image_lay_out(image, table);
	if (error && image->made_directory)
		image_remove(image);
	return error;
}

static int execute(const struct arguments *arguments, const struct trace *trace, const struct file_table *table,
		   struct schedule *schedule, struct image *image, const char *engine_why)
{
	bool null = arguments->run.engine == ENGINE_NULL;
	struct result result = {
		.trace = trace,
		.table = table,
		.schedule = schedule,
		.image = image,
		.options = &arguments->run,
		.order = orders[arguments->order],
		.timing = timings[arguments->run.timing],
		.cache = caches[null ? CACHE_KEEP : arguments->cache],
		.phase = phases[arguments->phase],
		.stopped = "end",
		.engine_why = engine_why,
		.direct = directs[arguments->direct],
		.sync = syncs[arguments->sync],
		.late = late_policies[arguments->run.late],
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
		error = run_prepare(&run);
		if (!error && !null)
			error = cache_apply(image, table, (enum cache_state)arguments->cache, &result.cache_report);
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
	if (!null && !arguments->keep_image && arguments->phase != PHASE_PREPARE && image_remove(image))
		return EXIT_FAILURE;
	if (error)
		return EXIT_FAILURE;
	return trusted ? EXIT_SUCCESS : EXIT_NOT_TRUSTWORTHY;
}

/* Goes through the trace once, which may be larger than memory. */
static int survey(const struct trace *trace, struct class_choice class_choice, struct file_table *table,
		  struct schedule *schedule)
{
	__attribute__((cleanup(files_survey_free))) struct files_survey *files = NULL;
	int error = files_survey_init(&files, trace, class_choice);

	if (!error)
		error = schedule_survey_init(schedule, trace);
	for (uint64_t first = 0; first < trace->count && !error; first += TRACE_BLOCK_RECORDS) {
		uint64_t left = trace->count - first;
		uint64_t count = left < TRACE_BLOCK_RECORDS ? left : TRACE_BLOCK_RECORDS;

		error = files_survey(files, first, count);
		if (!error)
			error = schedule_survey(schedule, first, count);
		trace_drop(trace, first, count);
	}
	return error ? error : files_survey_end(files, table);
}

static int replay(struct arguments *arguments)
{
	__attribute__((cleanup(trace_close))) struct trace trace = {0};
	__attribute__((cleanup(files_free))) struct file_table table = {0};
	__attribute__((cleanup(schedule_free))) struct schedule schedule = {0};
	__attribute__((cleanup(image_close))) struct image image = {.directory = -1};

	if (trace_open(&trace, arguments->trace))
		return EXIT_FAILURE;
	if (choose_order(arguments, &trace))
		return EXIT_USAGE;
	if (survey(&trace, choose_classes(arguments), &table, &schedule))
		return EXIT_FAILURE;
	if (!schedule.count) {
		complain("%s holds no operation: there is nothing to replay", arguments->trace);
		return EXIT_FAILURE;
	}
	char engine_why[ENGINE_WHY_BYTES];
	if (engine_choose(&arguments->run, &table, engine_why))
		return EXIT_FAILURE;
	if (arguments->run.engine != ENGINE_NULL && image_open(&image, arguments->directory, &stop))
		return EXIT_FAILURE;
	return execute(arguments, &trace, &table, &schedule, &image, engine_why);
}

int main(int count, char **values)
{
	struct arguments arguments = {.order = -1, .run = {.speed = 1, .late_limit_ns = 10 * 1000 * 1000}};

	argp_err_exit_status = EXIT_USAGE;
	argp_parse(&parser, count, values, 0, NULL, &arguments);
	watch_signals();
	return replay(&arguments);
}

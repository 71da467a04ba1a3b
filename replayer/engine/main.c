// SPDX-License-Identifier: Apache-2.0
// Turns a command line into a replay: trace in, operations in a directory, result document on stdout.
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bpf/standard_streams.h"
#include "replayer/engine/arguments.h"
#include "replayer/engine/cache_state.h"
#include "replayer/engine/engine_choice.h"
#include "replayer/engine/message.h"
#include "replayer/engine/read_memory.h"
#include "replayer/engine/recorded_holes.h"
#include "replayer/engine/resident_ranges.h"
#include "replayer/engine/result.h"
#include "replayer/engine/trace_loss.h"

static atomic_bool stop;
static atomic_bool stopped_by_signal;

static void on_signal(int number)
{
	(void)number;
	atomic_store(&stopped_by_signal, true);
	atomic_store(&stop, true);
}

static void watch_signals(void)
{
	/* Stdio forgets what an interrupted call was to print. Waiting with a time limit ends in spite of SA_RESTART. */
	struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART}, before;

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	/* nohup has it ignored. */
	if (sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler != SIG_IGN)
		sigaction(SIGHUP, &action, NULL);
	/* Neither who no longer reads nor a limit on sizes (ulimit -f) is a reason to leave files behind. */
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);
}

/* The threads of a foreign trace may be made up so that the recorded depth is kept, which the interval order does. */
static enum order_kind default_order(const struct trace *trace, const struct file_table *table)
{
	if (trace->header.flags & TRACE_UNTIMED)
		return ORDER_THREAD;
	return table->foreign ? ORDER_RECORDED : ORDER_RESOURCE;
}

static int choose_order(struct arguments *arguments, const struct trace *trace, const struct file_table *table)
{
	bool untimed = trace->header.flags & TRACE_UNTIMED;

	if (arguments->order < 0)
		arguments->order = (int)default_order(trace, table);
	arguments->run.order = (enum order_kind)arguments->order;
	arguments->run.untimed = untimed;
	if (untimed && arguments->run.timing != TIMING_ASAP) {
		complain("%s is synthetic and has no times to repeat: use --timing asap", trace->path);
		return -EINVAL;
	}
	if (untimed && arguments->run.order != ORDER_THREAD) {
		complain("%s is synthetic and has no order across threads: use --order thread", trace->path);
		return -EINVAL;
	}
	return 0;
}

static struct class_choice choose_classes(const struct arguments *arguments)
{
	static const uint8_t sync_added[] = {[SYNC_DSYNC] = CLASS_DSYNC, [SYNC_SYNC] = CLASS_SYNC};

	return (struct class_choice){
		.kept = (arguments->direct == DIRECT_RECORDED ? CLASS_DIRECT : 0) |
			(arguments->sync == SYNC_RECORDED ? CLASS_SYNCED : 0),
		.added = (arguments->direct == DIRECT_ON ? CLASS_DIRECT : 0) | sync_added[arguments->sync],
		.sync_off = arguments->sync == SYNC_OFF,
	};
}

static int see_places(struct image *image)
{
	int error = image->places ? image_see_places(image, &image->seen) : 0;

	if (error && error != -EINTR)
		complain("cannot see whether the files in %s lie as --layout recorded has put them (%s): leave it out",
			 image->path, strerror(-error));
	return error == -EINTR ? 0 : error; /* the run then ends with its result */
}

/*
 * Of a layout that came to nothing what was made for this replay goes, unless it is to be kept. An earlier image stays,
 * whatever has become of it.
 */
static void take_back(const struct arguments *arguments, struct image *image)
{
	if (image->made_directory || (!arguments->keep_image && image->begun))
		image_remove(image);
}

/* Has the image ready. */
static int prepare(const struct arguments *arguments, const struct file_table *table, struct image *image)
{
	int error = 0;

	if (arguments->run.engine == ENGINE_NULL)
		return 0;
	if (arguments->phase == PHASE_RUN) {
		error = image_check(image, table);
		if (!error)
			error = image_remove_created(image, table);
		if (!error)
			error = image_check_links(image, table);
		if (error == -EINTR)
			complain("interrupted while looking at the image in %s", image->path);
		return error ? error : see_places(image);
	}
	if (!arguments->force_space)
		error = image_check_space(image, table);
	if (!error)
		error = image_lay_out(image, table);
	if (!error)
		error = see_places(image);
	if (error == -EINTR)
		complain("interrupted while laying out %s", image->path);
	if (error)
		take_back(arguments, image);
	return error;
}

/* What was allocated before stays charged to where it was. */
static int join_group(const char *group)
{
	char path[PATH_MAX];

	if (!group)
		return 0;
	snprintf(path, sizeof(path), "%s/cgroup.procs", group);
	int file = open(path, O_WRONLY | O_CLOEXEC);
	int error = file < 0 || write(file, "0", 1) < 0 ? -errno : 0;

	if (file >= 0)
		close(file);
	if (error)
		complain("cannot join the control group %s: %s", group, strerror(-error));
	return error;
}

static int apply_cache(const struct run *run, struct result *result)
{
	int error = 0;

	if (run->cache == CACHE_RECORDED)
		error = resident_ranges_read(run->ranges, run->trace, run->table, run->schedule->streams);
	if (!error)
		error = cache_apply(run->image, run->table, run->ranges, run->cache, &result->cache_report);
	result->ranges_cut = run->ranges->too_many;
	return error;
}

/* What was printed may not have got there: the disk is full, or nobody reads any more. */
static int flush_output(void)
{
	errno = EIO; /* where it was an earlier line */
	if (fflush(stdout) == 0 && !ferror(stdout))
		return 0;
	int error = errno;
	complain("cannot print the result: %s", strerror(error));
	return -error;
}

/* Runs the trace, and says in the result how that ended. */
static int run_trace(const struct arguments *arguments, struct run *run, struct result *result)
{
	int error = run_prepare(run);

	if (!error)
		error = join_group(arguments->memory_group);
	if (!error && arguments->run.engine != ENGINE_NULL)
		error = apply_cache(run, result);
	if (!error)
		error = run_all(run);
	result->run = run;
	if (atomic_load(&stopped_by_signal))
		result->stopped = "signal";
	else if (run->error || atomic_load(&run->ring_error) || trace_is_lost())
		result->stopped = "error";
	else if (atomic_load(&stop))
		result->stopped = "max-time";
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
		.layout = layouts[arguments->layout],
	};
	__attribute__((cleanup(file_ranges_free))) struct file_ranges ranges = {0};
	struct run run = {.trace = trace,
			  .table = table,
			  .schedule = schedule,
			  .options = &arguments->run,
			  .image = image,
			  .cache = (enum cache_state)arguments->cache,
			  .ranges = &ranges,
			  .stop = &stop};
	int error = prepare(arguments, table, image);

	if (error)
		return EXIT_FAILURE;
	if (arguments->phase != PHASE_PREPARE)
		error = run_trace(arguments, &run, &result);
	bool trusted = !error && result_print(&result);
	if (!error)
		error = flush_output();
	/* From here on it may wait for storage: closing a file on NFS writes it to the server. */
	if (run.gave_up)
		close(STDOUT_FILENO); /* who reads it need not wait, too */
	else
		run_free(&run);
	/* Who does not hear that the files are there is not going to have them removed. */
	if (error && arguments->phase == PHASE_PREPARE)
		take_back(arguments, image);
	bool removes = !null && !arguments->keep_image && arguments->phase != PHASE_PREPARE;
	if (removes && image_remove(image))
		error = -EIO;
	int status = error ? EXIT_FAILURE : trusted ? EXIT_SUCCESS : EXIT_NOT_TRUSTWORTHY;
	/* What its threads may come back to is still there. */
	if (run.gave_up)
		exit(status);
	return status;
}

/* Goes through the trace once, which may be larger than memory. */
static int survey(const struct trace *trace, struct class_choice classes, struct file_ranges *holes,
		  struct file_table *table, struct schedule *schedule)
{
	__attribute__((cleanup(files_survey_free))) struct files_survey *files = NULL;
	int error = files_survey_init(&files, trace, classes, holes);

	if (!error)
		error = schedule_survey_init(schedule, trace);
	for (uint64_t first = 0; first < trace->count && !error; first += TRACE_BLOCK_RECORDS) {
		uint64_t left = trace->count - first;
		uint64_t count = left < TRACE_BLOCK_RECORDS ? left : TRACE_BLOCK_RECORDS;

		error = files_survey(files, first, count);
		if (!error)
			error = schedule_survey(schedule, first, count);
		trace_drop(trace, first, count);
		if (!error)
			error = trace_check_stop(trace);
	}
	return error ? error : files_survey_end(files, table);
}

/* Whether a device that may only be read leaves anything to do: reads, or what goes to other files. */
static bool leaves_something(const struct schedule *schedule, const struct file_table *table)
{
	for (uint32_t t = 0; t < schedule->thread_count; t++) {
		if (schedule->threads[t].read_bytes_max)
			return true;
	}
	for (uint32_t id = 1; id < table->count; id++) {
		if (table->files[id].used && !table->files[id].on_device)
			return true;
	}
	return false;
}

static int replay(struct arguments *arguments)
{
	__attribute__((cleanup(trace_close))) struct trace trace = {0};
	__attribute__((cleanup(file_ranges_free))) struct file_ranges holes = {0};
	__attribute__((cleanup(files_free))) struct file_table table = {0};
	__attribute__((cleanup(schedule_free))) struct schedule schedule = {0};
	__attribute__((cleanup(target_close))) struct target target = {.descriptor = -1};
	__attribute__((cleanup(image_close))) struct image image = {.directory = -1};
	__attribute__((cleanup(recorded_places_free))) struct recorded_places places = {0};

	if (trace_open(&trace, arguments->trace, &stop))
		return EXIT_FAILURE;
	if (recorded_holes_read(&holes, &trace) || survey(&trace, choose_classes(arguments), &holes, &table, &schedule))
		return EXIT_FAILURE;
	if (choose_order(arguments, &trace, &table))
		return EXIT_USAGE;
	if (!schedule.count) {
		complain("%s holds no operation of a program: there is nothing to replay%s", arguments->trace,
			 arguments->device ? "" : "; block requests are replayed by --device");
		return EXIT_FAILURE;
	}
	char engine_why[ENGINE_WHY_BYTES];
	if (engine_choose(&arguments->run, &table, engine_why))
		return EXIT_FAILURE;
	bool runs = arguments->phase != PHASE_PREPARE && arguments->run.engine != ENGINE_NULL;
	if (runs && read_memory_check(&schedule, &arguments->run))
		return EXIT_FAILURE;
	bool on_device = arguments->device && arguments->run.engine != ENGINE_NULL;
	if (on_device && target_open(&target, arguments->device, arguments->write, arguments->confirm))
		return EXIT_FAILURE;
	image = (struct image){.path = arguments->directory,
			       .target = on_device ? &target : NULL,
			       .data_percent = arguments->data_percent,
			       .keep_cached = arguments->cache == CACHE_KEEP,
			       .directory = arguments->directory_descriptor,
			       .stop = &stop};
	if (image.target && image_use_target(&image, &table))
		return EXIT_FAILURE;
	if (image.target && !target.writable && !leaves_something(&schedule, &table)) {
		complain(
			"the trace reads nothing, and %s is only read: there is nothing to do; for its writes give --write and --confirm",
			target.path);
		return EXIT_FAILURE;
	}
	if (arguments->layout == LAYOUT_RECORDED && arguments->run.engine != ENGINE_NULL) {
		if (recorded_places_read(&places, &trace, &table))
			return EXIT_FAILURE;
		image.places = &places;
	}
	if (arguments->run.engine != ENGINE_NULL && image_open(&image))
		return EXIT_FAILURE;
	return execute(arguments, &trace, &table, &schedule, &image, engine_why);
}

/* Takes away what was laid out for a run that has not come, or did not live to its end. */
static int remove_image(const struct arguments *arguments)
{
	__attribute__((cleanup(image_close))) struct image image = {
		.path = arguments->directory, .directory = -1, .stop = &stop};

	return image_open(&image) || image_remove(&image) ? EXIT_FAILURE : EXIT_SUCCESS;
}

int main(int count, char **values)
{
	struct arguments arguments;

	standard_streams_hold();
	arguments_parse(&arguments, count, values);
	watch_signals();
	return arguments.phase == PHASE_REMOVE ? remove_image(&arguments) : replay(&arguments);
}

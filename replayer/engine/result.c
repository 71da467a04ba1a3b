// SPDX-License-Identifier: Apache-2.0
// Turns the counts of a run into the document flextrace.replay/1 on stdout.
#include <stdio.h>
#include <string.h>

#include "replayer/engine/arguments.h"
#include "replayer/engine/engine_choice.h"
#include "replayer/engine/data_fill.h"
#include "replayer/engine/json.h"
#include "replayer/engine/message.h"
#include "replayer/engine/result.h"
#include "replayer/engine/result_reasons.h"
#include "replayer/engine/result_times.h"
#include "replayer/engine/ring.h"

static const char *const mismatch_names[MISMATCHES] = {"short", "longer", "failed", "succeeded", "other_error"};

static const char *const skip_names[SKIP_REASONS] = {
	"unknown_file",	     "unknown_operation", "caller_error", "recorded_failure", "no_such_file", "not_open",
	"shared_descriptor", "program_page",	  "late",	  "sync_off",	      "writes_off",   "device_name",
	"stopped",
};

struct totals {
	struct tally tally;
	struct histogram histograms[HISTOGRAMS];
	struct accuracy accuracy;
	uint32_t in_flight_max; /* of a thread */
};

static void add_up(const struct run *run, struct totals *totals)
{
	for (uint32_t t = 0; run && t < run->schedule->thread_count; t++) {
		tally_assert(&run->workers[t].tally);
		tally_merge(&totals->tally, &run->workers[t].tally);
		for (int kind = 0; kind < HISTOGRAMS; kind++)
			histogram_merge(&totals->histograms[kind], &run->workers[t].histograms[kind]);
		if (run->workers[t].in_flight_max > totals->in_flight_max)
			totals->in_flight_max = run->workers[t].in_flight_max;
	}
	if (run)
		totals->accuracy = accuracy_of(run, &totals->tally);
}

static void print_outcomes(const char *name, const uint64_t records, const uint64_t outcomes[OUTCOMES])
{
	if (name)
		json_open(name, '{');
	json_count("records", records);
	json_count("done", outcomes[OUTCOME_DONE]);
	json_count("short", outcomes[OUTCOME_SHORT]);
	json_count("failed", outcomes[OUTCOME_FAILED]);
	json_count("skipped", outcomes[OUTCOME_SKIPPED]);
	if (name)
		json_close('}');
}

static void print_operations(const struct tally *tally)
{
	uint64_t outcomes[OUTCOMES];

	for (int outcome = 0; outcome < OUTCOMES; outcome++)
		outcomes[outcome] = tally_outcomes(tally, (enum outcome)outcome);
	json_open("operations", '{');
	print_outcomes(NULL, tally->records[KIND_IO] + tally->records[KIND_FILEOP], outcomes);
	print_outcomes("io", tally->records[KIND_IO], tally->outcomes[KIND_IO]);
	print_outcomes("fileop", tally->records[KIND_FILEOP], tally->outcomes[KIND_FILEOP]);
	json_close('}');
	json_open("mismatches", '{');
	for (int kind = 0; kind < MISMATCHES; kind++) {
		if (tally->mismatches[kind])
			json_count(mismatch_names[kind], tally->mismatches[kind]);
	}
	json_close('}');
	json_open("skipped_reasons", '{');
	for (int reason = 0; reason < SKIP_REASONS; reason++) {
		if (tally->skipped[reason])
			json_count(skip_names[reason], tally->skipped[reason]);
	}
	json_close('}');
	json_open("errors", '{');
	for (int error = 0; error <= ERRNO_MAX; error++) {
		if (tally->errors[error])
			json_count(errno_name(error), tally->errors[error]);
	}
	json_close('}');
}

static void print_measured(const struct result *result, const struct totals *totals)
{
	const struct tally *tally = &totals->tally;
	uint64_t records = tally->records[KIND_IO] + tally->records[KIND_FILEOP];
	uint64_t bytes = tally->bytes[0] + tally->bytes[1];
	double elapsed_s = result->run ? (double)result->run->elapsed_ns / 1e9 : 0;
	double in_io_s = result->run ? (double)atomic_load(&result->run->io_time.total_ns) / 1e9 : 0;
	double in_sync_s = result->run ? (double)atomic_load(&result->run->sync_time.total_ns) / 1e9 : 0;

	json_number("passes", (double)(records - tally->skipped[SKIP_STOPPED]) / (double)result->schedule->count);
	json_number("elapsed_s", elapsed_s);
	json_number("time_in_io_s", in_io_s);
	json_number("time_in_sync_s", in_sync_s);
	print_operations(tally);
	json_open("bytes", '{');
	json_count("read", tally->bytes[0]);
	json_count("write", tally->bytes[1]);
	json_close('}');
	json_open("requests", '{');
	json_count("read", tally->requests[0]);
	json_count("write", tally->requests[1]);
	json_close('}');
	json_number("throughput_bytes_per_s", elapsed_s > 0 ? (double)bytes / elapsed_s : 0);
	json_number("throughput_in_io_bytes_per_s", in_io_s > 0 ? (double)bytes / in_io_s : 0);
	json_open("response_time", '{');
	print_times("read", &totals->histograms[HISTOGRAM_READ]);
	print_times("write", &totals->histograms[HISTOGRAM_WRITE]);
	print_times("sync", &totals->histograms[HISTOGRAM_SYNC]);
	json_close('}');
	if (result->options->timing != TIMING_RECORDED)
		return;
	json_open("response_time_from_due", '{');
	print_times("read", &totals->histograms[HISTOGRAM_READ_DUE]);
	print_times("write", &totals->histograms[HISTOGRAM_WRITE_DUE]);
	print_times("sync", &totals->histograms[HISTOGRAM_SYNC_DUE]);
	json_close('}');
}

static void print_engine(const struct result *result, const struct totals *totals)
{
	const struct run_options *options = result->options;

	json_open("engine", '{');
	json_text("name", engine_names[options->engine]);
	json_text("why", result->engine_why);
	json_text("direct", result->direct);
	json_text("sync", result->sync);
	if (strcmp(result->sync, syncs[SYNC_RECORDED]) != 0)
		json_count("sync_changed_writes", totals->tally.sync_changed);
	if (options->engine == ENGINE_URING) {
		if (options->depth)
			json_count("depth", options->depth);
		else
			json_text("depth", options->untimed ? "1" : "recorded");
		json_count("in_flight_max_per_thread", totals->in_flight_max);
		json_count("submits", totals->tally.submits);
		json_open("submit_blocked", '{');
		json_count("limit_ns", SUBMIT_BLOCKED_NS);
		json_count("count", totals->tally.submits_blocked);
		json_count("total_ns", totals->tally.submits_blocked_ns);
		json_close('}');
	}
	json_close('}');
}

static void print_accuracy(const struct result *result, const struct totals *totals)
{
	const struct run *run = result->run;
	const struct accuracy *accuracy = &totals->accuracy;

	json_open("accuracy", '{');
	json_text("verdict", verdict_name(accuracy->verdict));
	json_count("wake_up_ns", run->pacer.wake_up_ns);
	json_count("spin_margin_ns", run->pacer.margin_ns);
	if (result->options->timing != TIMING_ASAP) {
		json_count("limit_ns", run->late_after_ns);
		json_number("late_share", accuracy->late_share);
		print_distribution("lateness", &totals->histograms[HISTOGRAM_LATENESS]);
	}
	if (result->options->timing == TIMING_RECORDED) {
		json_number("behind_share", accuracy->behind_share);
		print_distribution("behind", &totals->histograms[HISTOGRAM_BEHIND]);
		json_count("drift_ns", accuracy->drift_ns);
		json_count("schedule_ns", accuracy->schedule_ns);
		json_text("late_policy", result->late);
		json_count("skip_limit_ns", result->options->late_limit_ns);
		json_count("slip_ns", run->slipped_ns);
	}
	json_close('}');
}

static void print_device(const struct target *target)
{
	json_open("device", '{');
	json_text("path", target->path);
	json_count("size_bytes", target->size_bytes);
	json_count("logical_block_bytes", target->block_bytes);
	json_flag("write", target->writable);
	json_close('}');
}

static void print_image(const struct result *result)
{
	const struct image *image = result->image;
	const struct cache_report *cache = &result->cache_report;
	char data[DATA_NAME_BYTES];

	data_name(data, image->data_percent);
	json_open("image", '{');
	json_count("files", result->table->laid_out_files);
	json_count("bytes", result->table->laid_out_bytes);
	json_count("hole_bytes", result->table->laid_out_hole_bytes);
	json_count("built_bytes", image->built_bytes);
	json_text("data", data);
	json_text("layout", result->layout);
	json_count("layout_pieces", image->places ? image->places->count : 0);
	json_count("layout_bytes", image->places ? image->places->bytes : 0);
	json_count("layout_runs", image->seen.runs);
	json_count("cache_wanted_ranges", cache->wanted_ranges);
	json_count("cache_achieved_bytes", cache->achieved_bytes);
	json_count("cache_wanted_bytes", cache->wanted_bytes);
	json_count("cache_resident_bytes", cache->resident_bytes);
	json_close('}');
}

bool result_print(const struct result *result)
{
	static struct totals totals; /* too large for the stack */

	add_up(result->run, &totals);
	json_open(NULL, '{');
	json_text("schema", "flextrace.replay/1");
	json_text("tool_version", FLEXTRACE_VERSION);
	json_text("trace", result->trace->path);
	if (result->image->path)
		json_text("directory", result->image->path);
	if (result->image->target)
		print_device(result->image->target);
	json_text("phase", result->phase);
	json_text("timing", result->timing);
	if (result->options->timing == TIMING_THINK)
		json_text("computing", computings[result->options->computing ? COMPUTING_RECORDED : COMPUTING_OFF]);
	if (result->options->recording_ns)
		json_count("recording_ns", result->options->recording_ns);
	if (result->options->others > 0)
		json_number("others_processors", result->options->others);
	json_text("order", result->order);
	if (result->options->lead)
		json_count("lead", result->options->lead);
	json_text("cache", result->cache);
	json_number("speed", result->options->speed);
	json_count("threads", result->schedule->thread_count);
	json_text("stopped", result->stopped);
	if (result->run && result->run->gave_up)
		json_count("unanswered", result->run->unanswered);
	print_engine(result, &totals);
	print_measured(result, &totals);
	if (result->run)
		print_accuracy(result, &totals);
	bool trusted = print_reasons(result, &totals.tally, &totals.accuracy);
	print_warnings(result, &totals.tally, &totals.accuracy);
	print_image(result);
	json_close('}');
	return trusted;
}

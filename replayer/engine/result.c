// SPDX-License-Identifier: Apache-2.0
// Turns the counts of a run into the document flextrace.replay/1 on stdout.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "replayer/engine/accuracy.h"
#include "replayer/engine/arguments.h"
#include "replayer/engine/engine_choice.h"
#include "replayer/engine/data_fill.h"
#include "replayer/engine/json.h"
#include "replayer/engine/message.h"
#include "replayer/engine/result.h"
#include "replayer/engine/result_times.h"
#include "replayer/engine/ring.h"

enum { FEW_RUNS_BYTES = 16 << 20 }; /* runs of recorded places are as long as this in a healthy file system */

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

static uint64_t sum_kinds(const struct tally *tally, enum outcome outcome)
{
	return tally->outcomes[KIND_IO][outcome] + tally->outcomes[KIND_FILEOP][outcome];
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
		outcomes[outcome] = sum_kinds(tally, outcome);
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

/* Why the times of the run are not those of the recording. False when there is nothing to say. */
static bool explain_lateness(const struct result *result, const struct accuracy *accuracy, char text[static 256])
{
	double limit_us = result->run ? (double)result->run->late_after_ns / 1e3 : 0;

	if (accuracy->verdict == VERDICT_LATE)
		snprintf(text, 256,
			 "%.1f %% of the operations began more than %.0f us after they were due and could have begun: "
			 "this host is too busy, or has too few processors, to keep times",
			 100 * accuracy->late_share, limit_us);
	else if (accuracy->verdict == VERDICT_BEHIND && result->options->late == LATE_SLIP)
		snprintf(text, 256,
			 "the schedule of %.3f s slipped by %.3f s: this machine or its storage cannot keep the "
			 "recorded pace",
			 (double)accuracy->schedule_ns / 1e9, (double)result->run->slipped_ns / 1e9);
	else if (accuracy->verdict == VERDICT_BEHIND)
		snprintf(text, 256,
			 "%.1f %% of the operations began more than %.0f us after their recorded time, or were left "
			 "out: "
			 "this machine or its storage cannot keep the recorded pace",
			 100 * accuracy->behind_share, limit_us);
	return accuracy->verdict >= VERDICT_LATE;
}

/* Why direct I/O is not that of the recording. Returns whether there is anything to say. */
static bool print_direct_reasons(const struct run *run, const struct tally *tally, double executed)
{
	bool refused = atomic_load(&run->descriptors.direct_refused);
	bool unaligned = (double)tally->unaligned[true] > executed * TRUSTED_SHARE;
	char text[256];

	if (refused)
		json_text(NULL, "the file system refused O_DIRECT: direct operations went through the page cache");
	if (unaligned) {
		snprintf(text, sizeof(text),
			 "%.1f %% of the operations were direct in smaller sectors than this storage has: they went "
			 "through the page cache",
			 100.0 * (double)tally->unaligned[true] / executed);
		json_text(NULL, text);
	}
	return refused || unaligned;
}

/* The list of reasons not to trust the result; empty when there is none. Returns whether it is. */
static bool print_reasons(const struct result *result, const struct totals *totals)
{
	const struct tally *tally = &totals->tally;
	double executed =
		(double)(tally->records[KIND_IO] + tally->records[KIND_FILEOP] - tally->skipped[SKIP_STOPPED]);
	double limit = executed * TRUSTED_SHARE;
	double strange = (double)(sum_kinds(tally, OUTCOME_SHORT) + sum_kinds(tally, OUTCOME_FAILED) +
				  tally->skipped[SKIP_UNKNOWN_FILE] + tally->skipped[SKIP_UNKNOWN_OPERATION] +
				  tally->skipped[SKIP_NO_SUCH_FILE]);
	char text[256];
	bool trusted = true;

	json_open("reasons", '[');
	/* With think times the lateness is part of the elapsed time that is measured: a warning. */
	if (result->options->timing == TIMING_RECORDED && explain_lateness(result, &totals->accuracy, text)) {
		json_text(NULL, text);
		trusted = false;
	}
	if (strange > limit) {
		snprintf(text, sizeof(text),
			 "%.1f %% of the operations were short, failed, or could not be repeated: see operations, "
			 "errors and "
			 "skipped_reasons",
			 100.0 * strange / executed);
		json_text(NULL, text);
		trusted = false;
	}
	uint64_t device_errors = tally->errors[EIO] + tally->errors[ENXIO] + tally->errors[ENODEV];
	if (device_errors) {
		snprintf(text, sizeof(text), "the device failed %llu operations (EIO, ENXIO or ENODEV): see dmesg",
			 (unsigned long long)device_errors);
		json_text(NULL, text);
		trusted = false;
	}
	/* A disk that was pulled has no size any more, and reads as if it ended there. */
	if (result->image->target && sum_kinds(tally, OUTCOME_SHORT)) {
		snprintf(text, sizeof(text),
			 "the device moved less than it was asked %llu times: was it removed? see dmesg",
			 (unsigned long long)sum_kinds(tally, OUTCOME_SHORT));
		json_text(NULL, text);
		trusted = false;
	}
	if (result->run && result->run->error) {
		snprintf(text, sizeof(text),
			 "the image could not be put back as it was before the first pass (%s): the loop ended there",
			 strerror(-result->run->error));
		json_text(NULL, text);
		trusted = false;
	}
	int ring_error = result->run ? atomic_load(&result->run->ring_error) : 0;
	if (ring_error) {
		snprintf(text, sizeof(text), "io_uring refused requests (%s): the run ended there; try --engine sync",
			 strerror(-ring_error));
		json_text(NULL, text);
		trusted = false;
	}
	if (result->run && print_direct_reasons(result->run, tally, executed))
		trusted = false;
	json_close(']');
	json_flag("trustworthy", trusted);
	return trusted;
}

static void print_places_warnings(const struct image *image)
{
	const struct places_seen *seen = &image->seen;
	char text[256];

	if (!image->places->count)
		json_text(NULL, "the trace has no places of its files on a device: --layout recorded changed nothing");
	if (image->places->too_many)
		json_text(NULL, "the trace has more places of its files than are kept: the last ones were left out");
	if (seen->runs > 1 + image->places->bytes / FEW_RUNS_BYTES) {
		snprintf(text, sizeof(text),
			 "the free space of the file system is in pieces: what --layout recorded would put side by "
			 "side lies in %llu places",
			 (unsigned long long)seen->runs);
		json_text(NULL, text);
	}
	if (seen->backward) {
		snprintf(text, sizeof(text),
			 "the file system did not keep the order of --layout recorded: %llu of %llu places lie "
			 "before the one that they should follow",
			 (unsigned long long)seen->backward, (unsigned long long)seen->runs);
		json_text(NULL, text);
	}
}

static void print_warnings(const struct result *result, const struct totals *totals)
{
	const struct file_table *table = result->table;
	bool lost = result->trace->header->flags & TRACE_LOST;
	char text[256];

	json_open("warnings", '[');
	if (result->trace->header->flags & TRACE_INCOMPLETE)
		json_text(NULL, "the trace was not closed cleanly: replayed up to its last whole record");
	for (int kind = 0; kind < TRACE_KINDS_MAX; kind++)
		lost |= result->trace->header->lost[kind] > 0;
	if (lost)
		json_text(NULL, "records were lost while recording: the replay does less than the application did");
	if (!strcmp(result->cache, "recorded") && table->unmeasured && result->run) {
		snprintf(text, sizeof(text),
			 "of %u of %u files the trace does not know how much was cached: they were cached whole",
			 table->unmeasured, table->laid_out_files);
		json_text(NULL, text);
	}
	if (result->ranges_cut)
		json_text(NULL, "the trace has more cached ranges than are kept: the last ones were left out");
	if (result->image->other_trace)
		json_text(NULL,
			  "the image was made for another trace or --layout; its files have the sizes that this one "
			  "needs");
	if (result->image->places)
		print_places_warnings(result->image);
	if (result->run && result->run->lead.given_up)
		json_text(NULL,
			  "no operation came to an end while threads waited for the slowest one: --lead was given "
			  "up from there on");
	if (result->image->target && !strcmp(result->cache, "warm"))
		json_text(NULL, "nothing of the device was brought into the page cache: --cache warm is for files");
	if (table->extended) {
		snprintf(text, sizeof(text),
			 "%u files were laid out larger than recorded, as reads reach beyond their ends",
			 table->extended);
		json_text(NULL, text);
	}
	if (table->undescribed) {
		snprintf(text, sizeof(text), "%u files have no FILE record: their sizes were taken from the requests",
			 table->undescribed);
		json_text(NULL, text);
	}
	if (result->options->timing == TIMING_THINK && explain_lateness(result, &totals->accuracy, text))
		json_text(NULL, text);
	uint64_t unaligned = totals->tally.unaligned[false] + totals->tally.unaligned[true];
	if (unaligned) {
		const struct target *target = result->image->target;

		snprintf(text, sizeof(text),
			 "%llu requests have no whole sectors of %u bytes, as direct I/O needs them here: "
			 "they went through the page cache",
			 (unsigned long long)unaligned,
			 target ? target->block_bytes : result->run->descriptors.sector_bytes);
		json_text(NULL, text);
	}
	if (strcmp(result->cache, "keep") != 0 &&
	    result->cache_report.resident_bytes > result->cache_report.wanted_bytes + 4096ull * table->laid_out_files) {
		snprintf(text, sizeof(text), "%llu bytes of the files were in the page cache, %llu were wanted there%s",
			 (unsigned long long)result->cache_report.resident_bytes,
			 (unsigned long long)result->cache_report.wanted_bytes,
			 result->cache_report.resident_bytes == table->laid_out_bytes
				 ? " (tmpfs has no other place for them)"
				 : "");
		json_text(NULL, text);
	}
	json_close(']');
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

bool result_print(const struct result *result)
{
	struct totals *totals = calloc(1, sizeof(*totals));
	char data[DATA_NAME_BYTES];

	if (!totals) {
		complain("no memory for the result");
		abort();
	}
	add_up(result->run, totals);
	data_name(data, result->image->data_percent);
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
	print_engine(result, totals);
	print_measured(result, totals);
	if (result->run)
		print_accuracy(result, totals);
	bool trusted = print_reasons(result, totals);
	print_warnings(result, totals);
	json_open("image", '{');
	json_count("files", result->table->laid_out_files);
	json_count("bytes", result->table->laid_out_bytes);
	json_count("built_bytes", result->image->built_bytes);
	json_text("data", data);
	json_text("layout", result->layout);
	json_count("layout_pieces", result->image->places ? result->image->places->count : 0);
	json_count("layout_bytes", result->image->places ? result->image->places->bytes : 0);
	json_count("layout_runs", result->image->seen.runs);
	json_count("cache_wanted_ranges", result->cache_report.wanted_ranges);
	json_count("cache_achieved_bytes", result->cache_report.achieved_bytes);
	json_count("cache_wanted_bytes", result->cache_report.wanted_bytes);
	json_count("cache_resident_bytes", result->cache_report.resident_bytes);
	json_close('}');
	json_close('}');
	free(totals);
	return trusted;
}

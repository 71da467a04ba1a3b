// SPDX-License-Identifier: Apache-2.0
// Turns what was otherwise than when it was recorded into sentences: reasons not to trust a result, and warnings.
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "replayer/engine/json.h"
#include "replayer/engine/result_reasons.h"
#include "replayer/engine/trace_loss.h"

enum {
	FEW_RUNS_BYTES = 16 << 20, /* runs of recorded places are as long as this in a healthy file system */
	SENTENCE_BYTES = 256,
};

/* An element of the list that is open. */
__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
	char sentence[SENTENCE_BYTES];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(sentence, sizeof(sentence), format, arguments);
	va_end(arguments);
	json_text(NULL, sentence);
}

/* Says why the times of the run are not those of the recording. False when there is nothing to say. */
static bool explain_lateness(const struct result *result, const struct accuracy *accuracy)
{
	double limit_us = result->run ? (double)result->run->late_after_ns / 1e3 : 0;

	if (accuracy->verdict == VERDICT_LATE)
		say("%.1f %% of the operations began more than %.0f us after they were due and could have begun: this host is too busy, or has too few processors, to keep times",
		    100 * accuracy->late_share, limit_us);
	else if (accuracy->verdict == VERDICT_BEHIND && result->options->late == LATE_SLIP)
		say("the schedule of %.3f s slipped by %.3f s: this machine or its storage cannot keep the recorded pace",
		    accuracy->schedules_ns / 1e9, (double)result->run->slipped_ns / 1e9);
	else if (accuracy->verdict == VERDICT_BEHIND)
		say("%.1f %% of the operations began more than %.0f us after their recorded time, or were left out: this machine or its storage cannot keep the recorded pace",
		    100 * accuracy->behind_share, limit_us);
	return accuracy->verdict >= VERDICT_LATE;
}

/* Says why direct I/O is not that of the recording. False when there is nothing to say. */
static bool explain_direct(const struct run *run, const struct tally *tally, double executed)
{
	bool refused = atomic_load(&run->descriptors.direct_refused);
	bool unaligned = (double)tally->unaligned[true] > executed * TRUSTED_SHARE;

	if (refused)
		say("the file system refused O_DIRECT: direct operations went through the page cache");
	if (unaligned)
		say("%.1f %% of the operations were direct in smaller sectors than this storage has: they went through the page cache",
		    100.0 * (double)tally->unaligned[true] / executed);
	return refused || unaligned;
}

/* Says that memory has bounded what was in flight: none was left for a page cache either. False when it has not. */
static bool explain_memory(const struct run *run)
{
	uint64_t refused = atomic_load(&run->flights_refused);

	if (refused)
		say("%llu reads found no memory left by those in flight, and waited for these or failed: let fewer be in flight by --depth N, or replay where there is more memory",
		    (unsigned long long)refused);
	return refused;
}

/* Says why a run ended before its time. False when it did not. */
static bool explain_end(const struct run *run)
{
	int ring_error = atomic_load(&run->ring_error);

	if (run->error)
		say("the image could not be put back as it was before the first pass (%s): the loop ended there",
		    strerror(-run->error));
	if (ring_error)
		say("io_uring refused requests (%s): the run ended there; try --engine sync", strerror(-ring_error));
	if (trace_is_lost())
		say("the trace could not be read to its end any more: it was cut off, or its disk failed: the run ended there");
	if (run->trace_hangs)
		say("the storage of the trace did not answer after the stop: not all of it could be read by then, and the engine cannot end before it does");
	else if (run->gave_up)
		say("storage did not answer after the stop: %llu operations failed by that (ETIMEDOUT), and the engine cannot end before it does",
		    (unsigned long long)atomic_load(&run->unanswered));
	return run->error || ring_error || run->gave_up || trace_is_lost();
}

bool print_reasons(const struct result *result, const struct tally *tally, const struct accuracy *accuracy)
{
	uint64_t short_ones = tally_outcomes(tally, OUTCOME_SHORT);
	double executed =
		(double)(tally->records[KIND_IO] + tally->records[KIND_FILEOP] - tally->skipped[SKIP_STOPPED]);
	double strange =
		(double)(short_ones + tally_outcomes(tally, OUTCOME_FAILED) + tally->skipped[SKIP_UNKNOWN_FILE] +
			 tally->skipped[SKIP_UNKNOWN_OPERATION] + tally->skipped[SKIP_NO_SUCH_FILE]);
	uint64_t device_errors = tally->errors[EIO] + tally->errors[ENXIO] + tally->errors[ENODEV];
	bool trusted = true;

	json_open("reasons", '[');
	/* With think times the lateness is part of the elapsed time that is measured: a warning. */
	if (result->options->timing == TIMING_RECORDED && explain_lateness(result, accuracy))
		trusted = false;
	if (strange > executed * TRUSTED_SHARE) {
		say("%.1f %% of the operations were short, failed, or could not be repeated: see operations, errors and skipped_reasons",
		    100.0 * strange / executed);
		trusted = false;
	}
	if (device_errors) {
		say("the device failed %llu operations (EIO, ENXIO or ENODEV): see dmesg",
		    (unsigned long long)device_errors);
		trusted = false;
	}
	/* A disk that was pulled has no size any more, and reads as if it ended there. */
	if (result->image->target && short_ones) {
		say("the device moved less than it was asked %llu times: was it removed? see dmesg",
		    (unsigned long long)short_ones);
		trusted = false;
	}
	if (result->run && explain_memory(result->run))
		trusted = false;
	if (result->run && explain_end(result->run))
		trusted = false;
	if (result->run && explain_direct(result->run, tally, executed))
		trusted = false;
	json_close(']');
	json_flag("trustworthy", trusted);
	return trusted;
}

static void warn_of_places(const struct image *image)
{
	const struct places_seen *seen = &image->seen;

	if (!image->places->count)
		say("the trace has no places of its files on a device: --layout recorded changed nothing");
	if (image->places->too_many)
		say("the trace has more places of its files than are kept: the last ones were left out");
	if (seen->runs > 1 + image->places->bytes / FEW_RUNS_BYTES)
		say("the free space of the file system is in pieces: what --layout recorded would put side by side lies in %llu places",
		    (unsigned long long)seen->runs);
	if (seen->backward)
		say("the file system did not keep the order of --layout recorded: %llu of %llu places lie before the one that they should follow",
		    (unsigned long long)seen->backward, (unsigned long long)seen->runs);
}

static void warn_of_cache(const struct result *result)
{
	const struct cache_report *report = &result->cache_report;
	const struct file_table *table = result->table;

	if (!strcmp(result->cache, "keep") ||
	    report->resident_bytes <= report->wanted_bytes + 4096ull * table->laid_out_files)
		return;
	say("%llu bytes of the files were in the page cache, %llu were wanted there%s",
	    (unsigned long long)report->resident_bytes, (unsigned long long)report->wanted_bytes,
	    report->resident_bytes == table->laid_out_bytes ? " (tmpfs has no other place for them)" : "");
}

void print_warnings(const struct result *result, const struct tally *tally, const struct accuracy *accuracy)
{
	const struct file_table *table = result->table;
	const struct image *image = result->image;
	uint64_t unaligned = tally->unaligned[false] + tally->unaligned[true];
	bool lost = result->trace->header.flags & TRACE_LOST;

	json_open("warnings", '[');
	if (result->trace->header.flags & TRACE_INCOMPLETE)
		say("the trace was not closed cleanly: replayed up to its last whole record");
	for (int kind = 0; kind < TRACE_KINDS_MAX; kind++)
		lost |= result->trace->header.lost[kind] > 0;
	if (lost)
		say("records were lost while recording: the replay does less than the application did");
	if (!strcmp(result->cache, "recorded") && table->unmeasured && result->run)
		say("of %u of %u files the trace does not know how much was cached: they were cached whole",
		    table->unmeasured, table->laid_out_files);
	if (result->ranges_cut)
		say("the trace has more cached ranges than are kept: the last ones were left out");
	if (table->holes->too_many)
		say("the trace has more holes of files than are kept: the last ones were filled");
	if (image->other_trace)
		say("the image was made for another trace or --layout; its files have the sizes that this one needs");
	if (image->places)
		warn_of_places(image);
	if (result->run && result->run->lead.given_up)
		say("nothing was under way while threads waited for the slowest one: --lead was given up from there on");
	if (image->target && !strcmp(result->cache, "warm"))
		say("nothing of the device was brought into the page cache: --cache warm is for files");
	if (table->extended)
		say("%u files were laid out larger than recorded, as reads reach beyond their ends", table->extended);
	if (table->undescribed)
		say("%u files have no FILE record: their sizes were taken from the requests", table->undescribed);
	if (result->options->timing == TIMING_THINK)
		explain_lateness(result, accuracy);
	if (unaligned)
		say("%llu requests have no whole sectors of %u bytes, as direct I/O needs them here: they went through the page cache",
		    (unsigned long long)unaligned,
		    image->target ? image->target->block_bytes : result->run->descriptors.sector_bytes);
	warn_of_cache(result);
	json_close(']');
}

// SPDX-License-Identifier: Apache-2.0
// Turns what was counted of due times into a verdict on how well a run kept them.
#include <stdlib.h>

#include "replayer/engine/accuracy.h"

static int compare_due(const void *left, const void *right)
{
	const struct drift_sample *a = left, *b = right;

	return a->due_ns < b->due_ns ? 1 : a->due_ns > b->due_ns ? -1 : 0;
}

static int compare_behind(const void *left, const void *right)
{
	const struct drift_sample *a = left, *b = right;

	return a->behind_ns < b->behind_ns ? -1 : a->behind_ns > b->behind_ns;
}

/*
 * Of the last operations of the schedule over all threads, the median: a due time that was missed once is lateness; a
 * schedule that has moved is missed by all of them.
 */
static uint64_t drift_of(const struct run *run)
{
	struct drift_sample *samples = calloc((size_t)run->schedule->thread_count * DRIFT_SAMPLES, sizeof(*samples));
	size_t count = 0;

	if (!samples)
		return 0;
	for (uint32_t t = 0; t < run->schedule->thread_count; t++) {
		const struct drift *drift = &run->workers[t].drift;

		for (uint32_t i = 0; i < DRIFT_SAMPLES && i < drift->count; i++)
			samples[count++] = drift->samples[i];
	}
	qsort(samples, count, sizeof(*samples), compare_due);
	if (count > DRIFT_SAMPLES)
		count = DRIFT_SAMPLES;
	qsort(samples, count, sizeof(*samples), compare_behind);
	uint64_t drift_ns = count ? samples[count / 2].behind_ns : 0;
	free(samples);
	return drift_ns;
}

struct accuracy accuracy_of(const struct run *run, const struct tally *tally)
{
	const struct schedule *schedule = run->schedule;
	const struct run_options *options = run->options;
	uint64_t executed = tally->records[KIND_IO] + tally->records[KIND_FILEOP] - tally->skipped[SKIP_STOPPED];
	struct accuracy accuracy = {
		.drift_ns = drift_of(run),
		.schedule_ns =
			bounded_ns((double)(schedule->last_start_ns - schedule->first_start_ns) / options->speed),
	};

	accuracy.schedules_ns = (double)accuracy.schedule_ns * run->passes;
	if (options->timing == TIMING_ASAP)
		return accuracy;
	accuracy.verdict = VERDICT_ON_TIME;
	if (!executed)
		return accuracy;
	accuracy.late_share = (double)tally->late / (double)executed;
	accuracy.behind_share = (double)(tally->behind + tally->skipped[SKIP_LATE]) / (double)executed;
	if (accuracy.late_share > TRUSTED_SHARE)
		accuracy.verdict = VERDICT_LATE;
	else if (accuracy.behind_share > TRUSTED_SHARE ||
		 (double)run->slipped_ns > TRUSTED_SHARE * accuracy.schedules_ns)
		accuracy.verdict = VERDICT_BEHIND;
	return accuracy;
}

const char *verdict_name(enum verdict verdict)
{
	static const char *const names[] = {"untimed", "on_time", "late", "behind"};

	return names[verdict];
}

// SPDX-License-Identifier: Apache-2.0
/*
 * Turns the end of a recording, and what goes wrong during it, into what the user is told.
 */
#include "summary.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "counters.h"

/* So that nothing is lost the next time, as far as an option helps. */
static void say_remedy(const struct options *options, const struct tracer *tracer, uint64_t lost)
{
	uint64_t beyond = counters_lost_beyond(tracer), for_room = counters_lost_for_room(tracer);
	if (beyond)
		fprintf(stderr, " %llu were of more files than are told apart: give a larger --max-files than %u.",
			(unsigned long long)beyond, options->files_max);
	if (for_room)
		fprintf(stderr, " Give a larger --ring-bytes than %llu.", (unsigned long long)tracer->ring_plan.bytes);
	if (lost > beyond + for_room)
		fprintf(stderr, " %llu were operations that could not be followed, which no option changes.",
			(unsigned long long)(lost - beyond - for_room));
	fputc('\n', stderr);
}

static void say_losses(const struct metadata *metadata, uint64_t lost)
{
	const char *separator = "";
	fprintf(stderr, "flextrace record: WARNING: %llu RECORDS WERE LOST (", (unsigned long long)lost);
	for (int kind = 0; kind < TRACE_KINDS_MAX; kind++) {
		if (!metadata->header->lost[kind])
			continue;
		fprintf(stderr, "%s%llu %s", separator, (unsigned long long)metadata->header->lost[kind],
			kind_names[kind] ? kind_names[kind] : "unknown");
		separator = ", ";
	}
	fprintf(stderr, "): numbers made from this trace are lower bounds.");
	say_remedy(metadata->options, metadata->tracer, lost);
}

static void say_why(const struct metadata *metadata, bool command_goes_on)
{
	const struct options *options = metadata->options;
	const char *rest = command_goes_on ? "; the command goes on, unrecorded: waiting for its end" : "";
	uint64_t tasks_left = counters_tasks_left(metadata->tracer);
	if (metadata->stopped_by == STOP_MAX_TIME)
		fprintf(stderr, "flextrace record: ended after %.9g s (--max-time)%s\n", options->duration_ns / 1e9,
			rest);
	else if (metadata->stopped_by == STOP_MAX_SIZE)
		fprintf(stderr, "flextrace record: ended at %llu bytes (--max-size)%s\n",
			(unsigned long long)options->trace_bytes_max, rest);
	else if (metadata->stopped_by == STOP_SIGNAL)
		fprintf(stderr, "flextrace record: ended by a signal%s\n", rest);
	else if (metadata->stopped_by == STOP_END && tasks_left)
		fprintf(stderr,
			"flextrace record: ended with %s: %llu threads that descend from it go on, unrecorded; --in-cgroup records all that is in a control group, until you end it\n",
			options->command ? "the command" : "the process", (unsigned long long)tasks_left);
}

/*
 * An interrupt came while a program ran and would have run it again: whether for one who is traced is not known. What misses
 * details of records only is left to the metadata.
 */
static void say_missed_runs(const struct tracer *tracer)
{
	struct missed_runs missed[MISSED_PROGRAMS_MAX];
	int programs = counters_missed_runs(tracer, missed);
	for (int i = 0; i < programs; i++)
		if (programs_makes_records(missed[i].program))
			fprintf(stderr,
				"flextrace record: warning: the kernel left out %llu runs of %s, because it was running on that CPU: up to as many records are missing, numbers made from this trace are lower bounds\n",
				(unsigned long long)missed[i].count, missed[i].program);
}

/* There is room for what is told of the devices that were there, and some more. */
static void say_too_large(const struct metadata *metadata)
{
	uint64_t bytes_max = metadata->options->trace_bytes_max;
	uint64_t end = metadata->header->json_offset + metadata->header->json_bytes;
	if (bytes_max && end > bytes_max)
		fprintf(stderr,
			"flextrace record: warning: the trace is %llu bytes larger than --max-size, as that much more is told of devices that came while it was recorded\n",
			(unsigned long long)(end - bytes_max));
}

/* It may be mistyped, or be another path where the program runs. */
static void say_unused_prefix(const struct metadata *metadata, uint64_t lost)
{
	const char *prefix = metadata->options->path_prefix;
	if (*prefix && !lost && !metadata->header->count[RECORD_FILE])
		fprintf(stderr,
			"flextrace record: warning: no operation was on a file below %s%s: all were left out (--path takes paths as the program sees them, without symbolic links)\n",
			prefix, access(prefix, F_OK) ? ", where nothing is" : "");
}

void summary_say_missing_prefix(const char *prefix, FILE *stream)
{
	if (*prefix && access(prefix, F_OK))
		fprintf(stream, "%snote: there is no %s yet: what is below it is recorded once it is made\n",
			stream == stderr ? "flextrace record: " : "", prefix);
}

/* So that a shell takes it as one word. */
static void say_word(const char *text)
{
	static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789%+,-./:=@_";
	if (*text && !text[strspn(text, plain)]) {
		fputs(text, stderr);
		return;
	}
	fputc('\'', stderr);
	for (; *text; text++) {
		if (*text == '\'')
			fputs("'\\'", stderr);
		fputc(*text, stderr);
	}
	fputc('\'', stderr);
}

void summary_say(const struct metadata *metadata, const char *path, uint64_t lost, bool command_goes_on)
{
	const struct trace_header *header = metadata->header;
	if (!metadata->options->quiet)
		say_why(metadata, command_goes_on);
	if (lost)
		say_losses(metadata, lost);
	uint64_t compat = counters_skip(metadata->tracer, SKIP_COMPAT);
	if (compat)
		fprintf(stderr,
			"flextrace record: warning: %llu calls of 32-bit and x32 programs were not recorded: numbers made from this trace are lower bounds\n",
			(unsigned long long)compat);
	uint64_t clones = counters_skip(metadata->tracer, SKIP_CLONE);
	if (clones)
		fprintf(stderr,
			"flextrace record: warning: %llu times a file was made to share the data of another (cp --reflink), which is not recorded: a replay finds less in such files\n",
			(unsigned long long)clones);
	say_missed_runs(metadata->tracer);
	if (metadata->drain->ends_unseen)
		fprintf(stderr,
			"flextrace record: warning: the end of %llu block requests was not seen: they are recorded without a response time\n",
			(unsigned long long)metadata->drain->ends_unseen);
	if (metadata->first_sight->residency.given_up)
		fprintf(stderr,
			"flextrace record: warning: which parts of %u files were cached is not recorded, only how much: they are too large, or came too many at once, to be looked through\n",
			metadata->first_sight->residency.given_up);
	holes_say(&metadata->first_sight->holes, stderr);
	closure_say(metadata->closure, stderr);
	say_too_large(metadata);
	say_unused_prefix(metadata, lost);
	if (metadata->options->quiet)
		return;
	fprintf(stderr,
		"flextrace record: %llu data operations, %llu file operations, %llu block requests, %llu lost: %s\n",
		(unsigned long long)header->count[RECORD_IO], (unsigned long long)header->count[RECORD_FILEOP],
		(unsigned long long)header->count[RECORD_BLOCK], (unsigned long long)lost, path);
	if (metadata->options->intermediate)
		return;
	fputs("flextrace record: next: flextrace characterize ", stderr);
	say_word(path);
	fputc('\n', stderr);
}

void summary_say_losing(const struct options *options, const struct tracer *tracer, uint64_t lost)
{
	fprintf(stderr,
		"flextrace record: WARNING: RECORDS ARE BEING LOST (%llu so far): this recording will not be complete.",
		(unsigned long long)lost);
	say_remedy(options, tracer, lost);
}

void summary_say_same_disk(struct topology *topology, const char *path, dev_t trace_filesystem, pid_t process,
			   const char *prefix, FILE *stream)
{
	char directory[64];
	struct stat target;
	uint32_t disk = topology_disk_of(topology, trace_filesystem);
	snprintf(directory, sizeof(directory), "/proc/%d/cwd", process);
	const char *place = *prefix ? prefix : process ? directory : NULL;
	if (!disk || !place || stat(place, &target) || topology_disk_of(topology, target.st_dev) != disk)
		return;
	const struct device *device = topology_device(topology, disk);
	fprintf(stream,
		"%snote: the trace is written to the disk that the target works on (%s), and so costs it time; its own requests are left out of the trace. To avoid that: -o FILE on another disk or a tmpfs\n",
		stream == stderr ? "flextrace record: " : "", device ? device->name : path);
}

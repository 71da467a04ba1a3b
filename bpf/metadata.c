// SPDX-License-Identifier: Apache-2.0
/*
 * Turns what is known of a recording besides its records into the JSON block of the trace.
 */
#include "metadata.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "cleanup.h"
#include "counters.h"
#include "json.h"

enum {
	ARGUMENTS_MAX = 64,
	ARGUMENTS_BYTES_MAX = 16 << 10, /* of all of them, in JSON: --max-size leaves room for them */
};

static const char *const stop_names[] = {
	[STOP_NOT_YET] = "",	      [STOP_END] = "end",	    [STOP_SIGNAL] = "signal",
	[STOP_MAX_TIME] = "max-time", [STOP_MAX_SIZE] = "max-size", [STOP_FAILED] = "failure",
};

const char *const kind_names[TRACE_KINDS_MAX] = {
	[RECORD_IO] = "IO",
	[RECORD_FILEOP] = "FILEOP",
	[RECORD_FILE] = "FILE",
	[RECORD_TASK] = "TASK",
	[RECORD_BLOCK] = "BLOCK",
	[RECORD_GAP] = "GAP",
	[RECORD_TEXT] = "TEXT",
	[RECORD_BLOCK_DATA] = "BLOCK_DATA",
	[RECORD_RESIDENT] = "RESIDENT",
	[RECORD_WAKE] = "WAKE",
	[RECORD_HOLE] = "HOLE",
};

/* The limit of the control group, in version 1 or 2; 0 = none. */
static uint64_t memory_limit_bytes(const char *cgroup)
{
	static const char *const names[] = {"memory.max", "memory.limit_in_bytes"};
	for (int i = 0; cgroup && i < 2; i++) {
		char path[4096], line[64];
		snprintf(path, sizeof(path), "%s/%s", cgroup, names[i]);
		_cleanup_fclose_ FILE *limit = fopen(path, "re");
		if (limit && fgets(line, sizeof(line), limit))
			return strtoull(line, NULL, 10);
	}
	return 0;
}

static void put_target(FILE *json, const struct options *options)
{
	if (options->process)
		fprintf(json, ",\"process\":%d", options->process);
	if (options->group_path) {
		fputs(",\"in_cgroup\":", json);
		json_string(json, options->group_path);
	}
	if (options->command) {
		size_t left = ARGUMENTS_BYTES_MAX;
		fputs(",\"command\":[", json);
		for (int i = 0; options->command[i] && i < ARGUMENTS_MAX && left; i++) {
			if (i)
				fputc(',', json);
			left = json_string_within(json, options->command[i], left);
		}
		fputc(']', json);
	}
	uint64_t limit_bytes = memory_limit_bytes(options->cgroup);
	if (limit_bytes)
		fprintf(json, ",\"memory_limit_bytes\":%llu", (unsigned long long)limit_bytes);
}

static void put_filters(FILE *json, const struct options *options)
{
	const char *separator = "";
	fputs(",\"filters\":{", json);
	if (options->device) {
		fprintf(json, "\"device\":\"%u:%u\"", options->device >> 20, options->device & 0xfffff);
		separator = ",";
	}
	if (*options->path_prefix) {
		fprintf(json, "%s\"path\":", separator);
		json_string(json, options->path_prefix);
		separator = ",";
	}
	if (options->size_bytes_min)
		json_number(json, &separator, "min_size_bytes", options->size_bytes_min);
	fputc('}', json);
}

static void put_op_totals(FILE *json, const struct tracer *tracer, uint8_t op)
{
	static const char *const sources[TOTAL_SOURCES] = {
		[SOURCE_SYSCALL] = "syscall", [SOURCE_AIO] = "aio",	  [SOURCE_IO_URING] = "io_uring",
		[SOURCE_MMAP] = "mmap",	      [SOURCE_SPLICE] = "splice",
	};
	const char *separator = "";
	for (int source = 0; source < TOTAL_SOURCES; source++) {
		struct total total = counters_total(tracer, op, source);
		if (!sources[source] || (!total.count && !total.failed))
			continue;
		fprintf(json, "%s\"%s\":{\"count\":%llu,\"bytes\":%llu,\"failed\":%llu}", separator, sources[source],
			(unsigned long long)total.count, (unsigned long long)total.bytes,
			(unsigned long long)total.failed);
		separator = ",";
	}
}

/* Counted in the kernel, but for names that a filter left out, so that they are exact whatever was lost. */
static void put_counters(FILE *json, const struct metadata *metadata)
{
	const struct tracer *tracer = metadata->tracer;
	static const char *const skips[SKIP_KINDS] = {
		[SKIP_NOT_A_FILE] = "not_a_file", [SKIP_PSEUDO_FILE] = "pseudo_file",
		[SKIP_COMPAT] = "compat_call",	  [SKIP_OWN_BLOCK] = "own_block_request",
		[SKIP_FILTERED] = "filtered",	  [SKIP_CLONE] = "clone",
	};
	const char *separator = "";
	fputs(",\"totals\":{\"read\":{", json);
	put_op_totals(json, tracer, IO_READ);
	fputs("},\"write\":{", json);
	put_op_totals(json, tracer, IO_WRITE);
	fprintf(json, "}},\"in_flight_max\":%llu,\"in_flight_end\":%llu,\"skips\":{",
		(unsigned long long)counters_in_flight_max(tracer), (unsigned long long)counters_in_flight(tracer));
	for (int skip = 0; skip < SKIP_KINDS; skip++) {
		uint64_t here = skip == SKIP_FILTERED ? metadata->drain->filtered_count : 0;
		if (skips[skip])
			json_number(json, &separator, skips[skip], counters_skip(tracer, skip) + here);
	}
	fputs("},\"missed_runs\":{", json);
	separator = "";
	struct missed_runs missed[MISSED_PROGRAMS_MAX];
	int programs = counters_missed_runs(tracer, missed);
	for (int i = 0; i < programs; i++)
		json_number(json, &separator, missed[i].program, missed[i].count);
	fputc('}', json);
}

/* How the processors were shared: what a replay computes, and computes for others (docs/decisions/0010). */
static void put_processors(FILE *json, const struct metadata *metadata)
{
	struct processor_use use = *metadata->processors;
	uint64_t recorded_ns = metadata->header->end_monotonic_ns - metadata->header->start_monotonic_ns;
	if (!recorded_ns || !use.since_ns)
		return; /* nothing, or no switch, was seen */
	fprintf(json, ",\"processors\":{\"others\":%.6f", (double)use.others_ns / (double)recorded_ns);
	const char *separator = ",";
	if (use.others_bursts)
		json_number(json, &separator, "others_burst_ns", use.others_ns / use.others_bursts);
	if (use.thinking_bursts)
		json_number(json, &separator, "thinking_burst_ns", use.thinking_ns / use.thinking_bursts);
	if (use.recording_calls) {
		json_number(json, &separator, "recording_ns",
			    use.recording_ns / use.recording_calls + metadata->tracer->call_cost_ns);
		json_number(json, &separator, "call_ns", metadata->tracer->call_ns);
	}
	fputc('}', json);
}

static void put_lost(FILE *json, const struct trace_header *header)
{
	const char *separator = "";
	fputs(",\"lost\":{", json);
	for (int kind = 0; kind < TRACE_KINDS_MAX; kind++)
		if (header->lost[kind])
			json_number(json, &separator, kind_names[kind] ? kind_names[kind] : "unknown",
				    header->lost[kind]);
	fputc('}', json);
}

static void put_result(FILE *json, const struct metadata *metadata)
{
	const struct drain *drain = metadata->drain;
	const struct ring_plan *rings = &metadata->tracer->ring_plan;
	fprintf(json, ",\"stopped_by\":\"%s\",\"exit_status\":", stop_names[metadata->stopped_by]);
	if (metadata->exit_status >= 0)
		fprintf(json, "%lld", (long long)metadata->exit_status);
	else
		fputs("null", json);
	fprintf(json,
		",\"records_out_of_order\":%llu,\"ends_unseen\":%llu,\"ring\":{\"bytes_per_cpu\":%llu,\"memory_bytes\":%llu,\"events\":%llu,\"event_bytes\":%llu}",
		(unsigned long long)drain->late_count, (unsigned long long)drain->ends_unseen,
		(unsigned long long)rings->bytes, (unsigned long long)ring_plan_memory_bytes(rings),
		(unsigned long long)drain->event_count, (unsigned long long)drain->event_bytes);
	put_counters(json, metadata);
	put_processors(json, metadata);
	put_lost(json, metadata->header);
	fputs(",\"closure\":", json);
	closure_put(metadata->closure, json);
	fputs(",\"holes\":", json);
	holes_put(&metadata->first_sight->holes, json);
	fputs(",\"devices\":[", json);
	topology_put(metadata->topology, json);
	fputc(']', json);
}

char *metadata_make(const struct metadata *metadata)
{
	const struct options *options = metadata->options;
	char *text = NULL;
	size_t bytes = 0;
	struct utsname host = {};
	FILE *json = open_memstream(&text, &bytes);
	if (!json)
		return NULL;

	uname(&host);
	fputs("{\"made_by\":\"flextrace record " FLEXTRACE_VERSION "\",\"kernel\":", json);
	json_string(json, host.release);
	fputs(",\"machine\":", json);
	json_string(json, host.machine);
	fprintf(json, ",\"layers\":[%s%s%s]", options->layer_vfs ? "\"vfs\"" : "",
		options->layer_vfs && options->layer_block ? "," : "", options->layer_block ? "\"block\"" : "");
	put_target(json, options);
	put_filters(json, options);
	if (metadata->tracer) {
		fprintf(json, ",\"cpus\":%d,\"programs\":[", metadata->tracer->cpu_count);
		tracer_put_programs(metadata->tracer, json);
		fputc(']', json);
	}
	if (metadata->drain)
		put_result(json, metadata);
	fputc('}', json);
	return fclose(json) ? NULL : text;
}

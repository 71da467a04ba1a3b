// SPDX-License-Identifier: Apache-2.0
/*
 * Turns what is known of a recording besides its records into the JSON block of the trace.
 */
#include "metadata.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "cleanup.h"

enum { ARGUMENTS_MAX = 64, DEVICES_MAX = 64 };

static void put_string(FILE *json, const char *text)
{
	fputc('"', json);
	for (const unsigned char *at = (const unsigned char *)text; *at; at++) {
		if (*at == '"' || *at == '\\')
			fprintf(json, "\\%c", *at);
		else if (*at < 0x20 ||
			 *at >= 0x7f) /* bytes of unknown encoding: one escape each keeps the JSON valid */
			fprintf(json, "\\u%04x", *at);
		else
			fputc(*at, json);
	}
	fputc('"', json);
}

/* First line of a small file, without its newline. false if it cannot be read. */
static bool read_line(const char *path, char *line, size_t room)
{
	_cleanup_fclose_ FILE *stream = fopen(path, "re");
	if (!stream || !fgets(line, room, stream))
		return false;
	line[strcspn(line, "\n")] = '\0';
	return true;
}

static void put_devices(FILE *json)
{
	DIR *directory = opendir("/sys/block");
	int count = 0;
	fputs(",\"devices\":[", json);
	for (struct dirent *entry; directory && count < DEVICES_MAX && (entry = readdir(directory));) {
		char path[600], number[32], sectors[32], rotational[8] = "";
		if (entry->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "/sys/block/%s/dev", entry->d_name);
		if (!read_line(path, number, sizeof(number)))
			continue;
		snprintf(path, sizeof(path), "/sys/block/%s/size", entry->d_name);
		if (!read_line(path, sectors, sizeof(sectors)) || !strcmp(sectors, "0"))
			continue;
		snprintf(path, sizeof(path), "/sys/block/%s/queue/rotational", entry->d_name);
		read_line(path, rotational, sizeof(rotational));
		fprintf(json, "%s{\"device\":\"%s\",\"name\":", count++ ? "," : "", number);
		put_string(json, entry->d_name);
		fprintf(json, ",\"sectors\":%s,\"rotational\":%s}", sectors,
			strcmp(rotational, "1") ? "false" : "true");
	}
	fputc(']', json);
	if (directory)
		closedir(directory);
}

/* The limit of the control group, in version 1 or 2; 0 = none. */
static uint64_t memory_limit_bytes(const char *cgroup)
{
	static const char *const names[] = {"memory.max", "memory.limit_in_bytes"};
	for (int i = 0; cgroup && i < 2; i++) {
		char path[4096], line[64];
		snprintf(path, sizeof(path), "%s/%s", cgroup, names[i]);
		if (read_line(path, line, sizeof(line)))
			return strtoull(line, NULL, 10);
	}
	return 0;
}

char *metadata_make(const struct options *options, const struct tracer *tracer, const struct drain *drain,
		    int64_t exit_status)
{
	char *text = NULL;
	size_t bytes = 0;
	struct utsname host = {};
	FILE *json = open_memstream(&text, &bytes);
	if (!json)
		return NULL;

	uname(&host);
	fputs("{\"made_by\":\"flextrace record " FLEXTRACE_VERSION "\",\"kernel\":", json);
	put_string(json, host.release);
	fputs(",\"machine\":", json);
	put_string(json, host.machine);
	fprintf(json, ",\"layers\":[%s%s%s]", options->layer_vfs ? "\"vfs\"" : "",
		options->layer_vfs && options->layer_block ? "," : "", options->layer_block ? "\"block\"" : "");
	if (options->process)
		fprintf(json, ",\"process\":%d", options->process);
	if (options->command) {
		fputs(",\"command\":[", json);
		for (int i = 0; options->command[i] && i < ARGUMENTS_MAX; i++) {
			if (i)
				fputc(',', json);
			put_string(json, options->command[i]);
		}
		fputc(']', json);
	}
	uint64_t limit_bytes = memory_limit_bytes(options->cgroup);
	if (limit_bytes)
		fprintf(json, ",\"memory_limit_bytes\":%llu", (unsigned long long)limit_bytes);
	if (tracer)
		fprintf(json, ",\"probes\":\"%s\",\"ring_bytes\":%llu,\"cpus\":%d", tracer_attached(tracer),
			(unsigned long long)options->ring_bytes, tracer->cpu_count);
	if (drain) {
		fprintf(json,
			",\"exit_status\":%lld,\"records_out_of_order\":%llu,\"skipped\":{\"not_a_file\":%llu,"
			"\"pseudo_file\":%llu,\"compat_call\":%llu,\"unrecorded_call\":%llu,\"own_block_request\":%"
			"llu}",
			(long long)exit_status, (unsigned long long)drain->late_count,
			(unsigned long long)tracer_skips(tracer, SKIP_NOT_A_FILE),
			(unsigned long long)tracer_skips(tracer, SKIP_PSEUDO_FILE),
			(unsigned long long)tracer_skips(tracer, SKIP_COMPAT),
			(unsigned long long)tracer_skips(tracer, SKIP_UNRECORDED_CALL),
			(unsigned long long)tracer_skips(tracer, SKIP_OWN_BLOCK));
		put_devices(json);
	}
	fputc('}', json);
	return fclose(json) ? NULL : text;
}

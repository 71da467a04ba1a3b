// SPDX-License-Identifier: Apache-2.0
/*
 * Compares what the tracer has seen with what the kernel has counted on its own: by task as in /proc/PID/io, by disk as in
 * /sys/block/DISK/stat.
 *
 * Both sides begin and end at the same moment for tasks, but for the calls that run just then. For disks they differ by
 * what is in flight while the programs are attached and detached. So a comparison is off if the ratio is further than
 * 0.1 % from 1 and the difference is more than calls in flight amount to (CALLS_TOLERATED, BYTES_TOLERATED).
 */
#include "closure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "counters.h"
#include "json.h"

enum {
	SECTOR_BYTES = 512,
	CALLS_TOLERATED = 16,
	BYTES_TOLERATED = 1 << 20,
};

static const double RATIO_TOLERATED = 0.001;

/* One number that both sides have counted. */
struct comparison {
	char device[24]; /* "" = of the tasks */
	const char *name;
	uint64_t seen, kernel;
	bool calls; /* bytes otherwise */
};

static double ratio_of(const struct comparison *one)
{
	if (one->seen == one->kernel)
		return 1;
	return one->kernel ? (double)one->seen / (double)one->kernel : INFINITY;
}

static bool is_off(const struct comparison *one)
{
	uint64_t difference = one->seen > one->kernel ? one->seen - one->kernel : one->kernel - one->seen;
	double ratio = ratio_of(one);
	return difference > (one->calls ? CALLS_TOLERATED : BYTES_TOLERATED) &&
	       (ratio < 1 - RATIO_TOLERATED || ratio > 1 + RATIO_TOLERATED);
}

static bool read_disk(const char *name, struct disk_count *disk)
{
	char path[300];
	unsigned int device_major, device_minor;
	unsigned long long read_sectors, write_sectors;

	snprintf(path, sizeof(path), "/sys/block/%s/dev", name);
	_cleanup_fclose_ FILE *number = fopen(path, "re");
	if (!number || fscanf(number, "%u:%u", &device_major, &device_minor) != 2)
		return false;
	snprintf(path, sizeof(path), "/sys/block/%s/stat", name);
	_cleanup_fclose_ FILE *statistics = fopen(path, "re");
	/* Documentation/block/stat.rst: reads, merged, sectors, ticks; writes, merged, sectors, ... */
	if (!statistics || fscanf(statistics, "%*u %*u %llu %*u %*u %*u %llu", &read_sectors, &write_sectors) != 2)
		return false;
	*disk = (struct disk_count){.device = device_number(device_major, device_minor),
				    .read_bytes = read_sectors * SECTOR_BYTES,
				    .write_bytes = write_sectors * SECTOR_BYTES};
	return true;
}

static void read_disks(struct disk_counts *disks, const struct tracer *tracer)
{
	struct disk_count disk;
	_cleanup_closedir_ DIR *directory = opendir("/sys/block");
	for (struct dirent *entry; directory && (entry = readdir(directory));) {
		if (entry->d_name[0] == '.' || !read_disk(entry->d_name, &disk))
			continue;
		struct disk_count *grown = realloc(disks->of, (disks->count + 1) * sizeof(*grown));
		if (!grown)
			return;
		struct device_total total = counters_device(tracer, disk.device);
		disk.seen_read_bytes = total.read_bytes;
		disk.seen_write_bytes = total.write_bytes;
		disks->of = grown;
		disks->of[disks->count++] = disk;
	}
}

static const struct disk_count *find_disk(const struct disk_counts *disks, uint32_t device)
{
	for (int i = 0; i < disks->count; i++)
		if (disks->of[i].device == device)
			return &disks->of[i];
	return NULL;
}

void closure_begin(struct closure *closure, const struct tracer *tracer, const struct programs_wish *wish)
{
	*closure = (struct closure){.tasks_wanted = wish->layer_vfs, .disks_wanted = wish->layer_block};
	read_disks(&closure->before, tracer);
}

void closure_end_disks(struct closure *closure, const struct tracer *tracer)
{
	read_disks(&closure->after, tracer);
}

void closure_end_tasks(struct closure *closure, const struct tracer *tracer)
{
	struct account exec = counters_account(tracer, ACCOUNT_EXEC);
	closure->seen = counters_account(tracer, ACCOUNT_SEEN);
	closure->kernel = counters_account(tracer, ACCOUNT_KERNEL);
	closure->kernel.rchar -= exec.rchar;
	closure->kernel.syscr -= exec.syscr;
}

static int compare_tasks(const struct closure *closure, struct comparison *all)
{
	const struct account *seen = &closure->seen, *kernel = &closure->kernel;
	const struct comparison of_tasks[] = {
		{.name = "rchar", .seen = seen->rchar, .kernel = kernel->rchar},
		{.name = "wchar", .seen = seen->wchar, .kernel = kernel->wchar},
		{.name = "syscr", .seen = seen->syscr, .kernel = kernel->syscr, .calls = true},
		{.name = "syscw", .seen = seen->syscw, .kernel = kernel->syscw, .calls = true},
		{.name = "read_bytes", .seen = seen->read_bytes, .kernel = kernel->read_bytes},
		{.name = "write_bytes", .seen = seen->write_bytes, .kernel = kernel->write_bytes},
	};
	/* The last two take both layers: dirtied pages are seen at the files, reads and direct writes at the devices. */
	int count = !closure->tasks_wanted ? 0 : closure->disks_wanted ? 6 : 4;
	memcpy(all, of_tasks, count * sizeof(*all));
	return count;
}

static int compare_disk(const struct closure *closure, const struct disk_count *after, struct comparison *all)
{
	static const struct disk_count none = {};
	const struct disk_count *before = find_disk(&closure->before, after->device);
	before = before ? before : &none; /* appeared in between */
	all[0] = (struct comparison){.name = "read_bytes",
				     .seen = after->seen_read_bytes - before->seen_read_bytes,
				     .kernel = after->read_bytes - before->read_bytes};
	all[1] = (struct comparison){.name = "write_bytes",
				     .seen = after->seen_write_bytes - before->seen_write_bytes,
				     .kernel = after->write_bytes - before->write_bytes};
	for (int i = 0; i < 2; i++)
		snprintf(all[i].device, sizeof(all[i].device), "%u:%u", after->device >> 20, after->device & 0xfffff);
	return all[0].seen || all[0].kernel || all[1].seen || all[1].kernel ? 2 : 0;
}

/* Tasks first, then disk by disk. To be freed. */
static struct comparison *compare_all(const struct closure *closure, int *count)
{
	/* At most. */
	struct comparison *all = calloc(6 + 2 * (size_t)closure->after.count, sizeof(*all));
	*count = all ? compare_tasks(closure, all) : 0;
	for (int i = 0; all && closure->disks_wanted && i < closure->after.count; i++)
		*count += compare_disk(closure, &closure->after.of[i], all + *count);
	return all;
}

static void put_comparison(FILE *json, const struct comparison *one)
{
	double ratio = ratio_of(one);
	fprintf(json, "\"%s\":{\"seen\":%llu,\"kernel\":%llu,\"ratio\":", one->name, (unsigned long long)one->seen,
		(unsigned long long)one->kernel);
	if (isfinite(ratio))
		fprintf(json, "%.6f}", ratio);
	else
		fputs("null}", json);
}

void closure_put(const struct closure *closure, FILE *json)
{
	int count, i = 0;
	_cleanup_free_ struct comparison *all = compare_all(closure, &count);

	fputs("{\"tasks\":{", json);
	for (; i < count && !*all[i].device; i++) {
		fputs(i ? "," : "", json);
		put_comparison(json, &all[i]);
	}
	fputs("},\"devices\":{", json);
	/* Two of each disk. */
	for (const char *separator = ""; i + 1 < count; i += 2, separator = ",") {
		fprintf(json, "%s\"%s\":{", separator, all[i].device);
		put_comparison(json, &all[i]);
		fputc(',', json);
		put_comparison(json, &all[i + 1]);
		fputc('}', json);
	}
	fputs("}}", json);
}

void closure_say(const struct closure *closure, FILE *stream)
{
	int count;
	_cleanup_free_ struct comparison *all = compare_all(closure, &count);
	const char *separator = "flextrace record: the trace does not agree with the kernel's own counters: ";
	bool any = false;

	for (int i = 0; i < count; i++) {
		if (!is_off(&all[i]))
			continue;
		fprintf(stream, "%s%s%s%s: %llu recorded, %llu counted", separator, *all[i].device ? all[i].device : "",
			*all[i].device ? " " : "", all[i].name, (unsigned long long)all[i].seen,
			(unsigned long long)all[i].kernel);
		separator = "; ";
		any = true;
	}
	if (any)
		fputs(" (all of them: \"closure\" in its header)\n", stream);
}

void closure_deinit(struct closure *closure)
{
	free(closure->before.of);
	free(closure->after.of);
}

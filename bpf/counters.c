// SPDX-License-Identifier: Apache-2.0
/*
 * Reads what the BPF programs count, per CPU, and adds it up.
 */
#include "counters.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>

#include "cleanup.h"
#include "record.skel.h"

/* Every value of these maps is an array of 64-bit counters, of which each CPU has its own. */
static void read_sum(const struct tracer *tracer, const struct bpf_map *map, const void *key, uint64_t *sum,
		     size_t bytes)
{
	size_t words = bytes / sizeof(*sum);
	_cleanup_free_ uint64_t *of_cpu = calloc(tracer->cpu_count, bytes);
	if (!of_cpu || bpf_map_lookup_elem(bpf_map__fd(map), key, of_cpu))
		return;
	for (size_t i = 0; i < tracer->cpu_count * words; i++)
		sum[i % words] += of_cpu[i];
}

uint64_t counters_skip(const struct tracer *tracer, enum skip skip)
{
	uint32_t key = skip;
	uint64_t sum = 0;
	read_sum(tracer, tracer->bpf->maps.skips, &key, &sum, sizeof(sum));
	return sum;
}

struct total counters_total(const struct tracer *tracer, uint8_t op, uint8_t source)
{
	uint32_t key = total_key(op, source);
	struct total total = {};
	read_sum(tracer, tracer->bpf->maps.totals, &key, (uint64_t *)&total, sizeof(total));
	return total;
}

struct account counters_account(const struct tracer *tracer, enum account_side side)
{
	uint32_t key = side;
	struct account account = {};
	read_sum(tracer, tracer->bpf->maps.accounts, &key, (uint64_t *)&account, sizeof(account));
	return account;
}

struct processor_use counters_processor_use(const struct tracer *tracer)
{
	uint32_t key = 0;
	struct processor_use use = {};
	read_sum(tracer, tracer->bpf->maps.processor_uses, &key, (uint64_t *)&use, sizeof(use));
	return use;
}

/* Of the two programs at the end of a request each makes up for the other; the first may still have missed a part of one. */
static uint64_t made_up_for(const struct tracer *tracer, const struct bpf_program *program, uint64_t missed)
{
	const struct record_bpf *bpf = tracer->bpf;
	if (program == bpf->progs.block_rq_complete_nested)
		return missed;
	if (program == bpf->progs.block_rq_complete)
		return bpf->bss->nested_ends < missed ? bpf->bss->nested_ends : missed;
	return 0;
}

int counters_missed_runs(const struct tracer *tracer, struct missed_runs of[MISSED_PROGRAMS_MAX])
{
	int programs = 0;
	struct bpf_program *program;
	bpf_object__for_each_program(program, tracer->bpf->obj)
	{
		struct bpf_prog_info info = {};
		__u32 bytes = sizeof(info);
		int fd = bpf_program__fd(program);
		if (fd < 0 || bpf_obj_get_info_by_fd(fd, &info, &bytes))
			continue;
		uint64_t missed = info.recursion_misses - made_up_for(tracer, program, info.recursion_misses);
		if (missed && programs < MISSED_PROGRAMS_MAX)
			of[programs++] = (struct missed_runs){bpf_program__name(program), missed};
	}
	return programs;
}

uint64_t counters_missed_records(const struct tracer *tracer)
{
	struct missed_runs missed[MISSED_PROGRAMS_MAX];
	int programs = counters_missed_runs(tracer, missed);
	uint64_t count = 0;
	for (int i = 0; i < programs; i++)
		if (programs_makes_records(missed[i].program))
			count += missed[i].count;
	return count;
}

uint64_t counters_in_flight_max(const struct tracer *tracer)
{
	return tracer->bpf->bss->in_flight_max;
}

uint64_t counters_in_flight(const struct tracer *tracer)
{
	return tracer->bpf->bss->in_flight;
}

uint64_t counters_lost_beyond(const struct tracer *tracer)
{
	return tracer->bpf->bss->lost_beyond;
}

uint64_t counters_lost_for_room(const struct tracer *tracer)
{
	return tracer->bpf->bss->lost_for_room + tracer->bpf->bss->files_unsent;
}

uint64_t counters_files_unsent(const struct tracer *tracer)
{
	return tracer->bpf->bss->files_unsent;
}

uint64_t counters_tasks_left(const struct tracer *tracer)
{
	return tracer->bpf->bss->tasks_left;
}

struct device_total counters_device(const struct tracer *tracer, uint32_t device)
{
	struct device_total total = {};
	read_sum(tracer, tracer->bpf->maps.device_totals, &device, (uint64_t *)&total, sizeof(total));
	return total;
}

uint64_t counters_losses_counted(const struct tracer *tracer)
{
	return tracer->bpf->bss->losses_counted;
}

/* In one call; per-CPU arrays can do that since 5.13. */
int counters_losses(const struct tracer *tracer, struct loss *of)
{
	uint32_t keys[TRACE_KINDS_MAX], count = TRACE_KINDS_MAX, position;
	int error =
		bpf_map_lookup_batch(bpf_map__fd(tracer->bpf->maps.losses), NULL, &position, keys, of, &count, NULL);
	/* The end of the map is told as an error. */
	return error && error != -ENOENT ? error : count == TRACE_KINDS_MAX ? 0 : -EIO;
}

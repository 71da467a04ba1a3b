// SPDX-License-Identifier: Apache-2.0
/*
 * Begins and ends the tracing of a process, over and over, that makes threads which only load from a mapped file, once each.
 * Tells how many records of such loads came and how many counted as lost.
 *
 *	short_tracing FILE ROUNDS
 */
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>

#include "tracing.h"

enum {
	PAGE_BYTES = 4096,
	ROUND_US = 200, /* in which some threads are made */
};

static void *load(void *page)
{
	if (madvise(page, PAGE_BYTES, MADV_DONTNEED))
		err(1, "madvise");
	(void)*(volatile char *)page;
	return NULL;
}

static void make_threads(const char *path)
{
	int file = open(path, O_RDONLY);
	void *page = file < 0 ? MAP_FAILED : mmap(NULL, PAGE_BYTES, PROT_READ, MAP_SHARED, file, 0);
	pthread_t thread;
	if (page == MAP_FAILED)
		err(1, "%s", path);
	while (!pthread_create(&thread, NULL, load, page) && !pthread_join(thread, NULL))
		;
}

static uint64_t count_lost(const struct tracer *tracer)
{
	struct loss *losses = calloc((size_t)TRACE_KINDS_MAX * tracer->cpu_count, sizeof(*losses));
	uint64_t lost = 0;
	if (!losses || counters_losses(tracer, losses))
		errx(1, "cannot read what was lost");
	for (int cpu = 0; cpu < tracer->cpu_count; cpu++)
		lost += losses[RECORD_IO * tracer->cpu_count + cpu].count;
	free(losses);
	return lost;
}

int main(int argc, char **argv)
{
	static struct tracing tracing;
	struct tracer *tracer = &tracing.tracer;
	if (argc != 3)
		errx(2, "usage: short_tracing FILE ROUNDS");
	tracing_init(&tracing);
	if (tracer_attach(tracer))
		return 1;
	/* Not before: an emulated processor may not survive that what it runs through all the time is attached to. */
	tracing_of(&tracing, make_threads, argv[1]);
	if (tracer_adopt(tracer, tracing.child, NULL))
		return 1;
	for (int round = 0; round < atoi(argv[2]); round++) {
		if (programs_run_iterator(tracer->bpf->obj, "adopt_target", NULL, NULL))
			errx(1, "cannot begin round %d", round);
		usleep(ROUND_US);
		if (programs_run_iterator(tracer->bpf->obj, "collect_accounts", NULL, NULL))
			errx(1, "cannot end round %d", round);
		ring_buffer__consume(tracing.rings);
	}
	tracer_detach(tracer);
	ring_buffer__consume(tracing.rings);
	printf("%llu %llu\n", (unsigned long long)tracing.io_records, (unsigned long long)count_lost(tracer));
	tracing_deinit(&tracing);
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The recorder's programs, loaded to trace a child of a test program -> the events that they send.
 */
#ifndef FLEXTRACE_TRACING_H
#define FLEXTRACE_TRACING_H

#include <bpf/libbpf.h>
#include <err.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bpf/counters.h"
#include "bpf/tracer.h"
#include "record.skel.h"

enum { RING_BYTES = 1 << 20 };

struct tracing {
	struct tracer tracer;
	struct ring_buffer *rings;
	uint64_t io_records; /* that were read */
	pid_t child;
};

static int read_event(void *io_records, void *event, size_t bytes)
{
	*(uint64_t *)io_records += *(const uint8_t *)event == RECORD_IO;
	return 0;
}

static void tracing_init(struct tracing *tracing)
{
	const struct tracer_settings settings = {.wish = {.layer_vfs = true}, .ring_bytes = RING_BYTES};
	struct tracer *tracer = &tracing->tracer;
	*tracing = (struct tracing){};
	if (tracer_init(tracer, &settings))
		exit(1);
	tracing->rings = ring_buffer__new(tracer->rings[0], read_event, &tracing->io_records, NULL);
	for (int cpu = 1; tracing->rings && cpu < tracer->cpu_count; cpu++)
		if (ring_buffer__add(tracing->rings, tracer->rings[cpu], read_event, &tracing->io_records))
			errx(1, "cannot read the rings");
	if (!tracing->rings)
		errx(1, "cannot read the rings");
}

/* Starts the child, which goes on until the end. */
static void tracing_of(struct tracing *tracing, void (*act)(const char *path), const char *path)
{
	tracing->child = fork();
	if (tracing->child < 0)
		err(1, "fork");
	if (tracing->child)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	act(path);
	exit(1);
}

static void tracing_deinit(struct tracing *tracing)
{
	kill(tracing->child, SIGKILL);
	waitpid(tracing->child, NULL, 0);
	ring_buffer__free(tracing->rings);
	tracer_deinit(&tracing->tracer);
}

#endif /* FLEXTRACE_TRACING_H */

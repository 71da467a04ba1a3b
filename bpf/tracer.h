/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FLEXTRACE_TRACER_H
#define FLEXTRACE_TRACER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "ring_event.h"

struct record_bpf;

/* The loaded BPF programs, their rings and counters. */
struct tracer {
	struct record_bpf *bpf;
	int *rings; /* one per CPU */
	int cpu_count;
};

struct tracer_settings {
	bool layer_vfs;
	bool layer_block;
	uint64_t ring_bytes;
	uint32_t trace_file_device;
	uint64_t trace_file_inode;
};

/* Loads the programs. Nothing is traced yet. 0, or a negative errno after saying on stderr what failed and what to do. */
int tracer_init(struct tracer *tracer, const struct tracer_settings *settings);
/* Takes in the target's tree and attaches. */
int tracer_attach(struct tracer *tracer, pid_t target);
void tracer_detach(struct tracer *tracer);
/* Losses of one record kind on one CPU. */
int tracer_losses(const struct tracer *tracer, uint32_t kind, struct loss *of_cpu);
uint64_t tracer_skips(const struct tracer *tracer, enum skip skip);
/* Names of the programs that are attached, comma-separated; static storage. */
const char *tracer_attached(const struct tracer *tracer);
void tracer_deinit(struct tracer *tracer);

#endif /* FLEXTRACE_TRACER_H */

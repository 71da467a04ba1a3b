/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FLEXTRACE_TRACER_H
#define FLEXTRACE_TRACER_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "control_group.h"
#include "kernel_btf.h"
#include "programs.h"
#include "ring_event.h"
#include "ring_plan.h"

struct record_bpf;

enum { REFUSALS_MAX = PROGRAMS_MAX };

/* The loaded BPF programs, their rings and counters. */
struct tracer {
	struct record_bpf *bpf;
	struct programs programs;
	struct kernel_btf types; /* and functions */
	struct ring_plan ring_plan;
	int *rings; /* one per CPU */
	int cpu_count; /* that are possible */
	struct refusal refusals[REFUSALS_MAX];
	int refusal_count;
	uint64_t adoptions; /* of tasks, when the last round began */
	uint64_t call_ns; /* that the shortest system call takes, before it is attached */
	uint64_t call_cost_ns; /* by how much each system call on the machine takes longer, once it is */
};

struct tracer_settings {
	struct programs_wish wish;
	bool survey; /* go on without whatever the kernel refuses, also what is required; make no rings */
	uint64_t ring_bytes; /* of each CPU, 0 = as ring_plan.h says */
	uint32_t files_max; /* that are told apart, 0 = as the programs have it */
	uint32_t trace_file_device; /* kernel encoding */
	uint64_t trace_file_inode;
	struct control_group group; /* whose tasks are traced, id 0 = none */
	/* What is left out, decided in the kernel. */
	const char *path_prefix; /* NULL = none */
	uint32_t device; /* kernel encoding, 0 = any */
	uint32_t file_devices[FILTER_DEVICES_MAX]; /* of files on that device, see device_filter.h */
	uint64_t size_bytes_min;
};

/* Loads the programs. Nothing is traced yet. 0, or a negative errno after saying on stderr what failed and what to do. */
int tracer_init(struct tracer *tracer, const struct tracer_settings *settings);
/* Attaches. No task is traced yet. */
int tracer_attach(struct tracer *tracer);
/*
 * Begins to trace: takes in the target's tree (0 = none) and the tasks of the control group. between: makes room in the
 * rings for the next file that they have open.
 */
int tracer_adopt(struct tracer *tracer, pid_t target, const struct between *between);
/* Says what the recorder is to be woken for, through the descriptor of libbpf's ring buffers, before it looks into them. */
void tracer_set_alarm(const struct tracer *tracer, enum alarm alarm);
/* ALARM_OFF if it has been woken since. */
enum alarm tracer_alarm(const struct tracer *tracer);
/* Takes in all of the processes that have come into the control group since the last time. 0 or a negative errno. */
int tracer_adopt_arrivals(struct tracer *tracer, const struct between *between);
/* Records the block requests that have ended unseen, while all programs are still attached. */
void tracer_find_ended_requests(struct tracer *tracer);
/* Ends tracing of each task at the moment at which what it was charged is read. Nothing is sent any more when it returns. */
void tracer_detach(struct tracer *tracer);
/* Sections of the programs that are loaded, as elements of a JSON array. */
void tracer_put_programs(const struct tracer *tracer, FILE *json);
void tracer_describe(const struct tracer *tracer, const struct programs_wish *wish, FILE *stream);
/* After a survey: each program and what became of it, as elements of a JSON array. */
void tracer_put_survey(const struct tracer *tracer, FILE *json);
void tracer_deinit(struct tracer *tracer);

#endif /* FLEXTRACE_TRACER_H */

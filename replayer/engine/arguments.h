/* SPDX-License-Identifier: Apache-2.0 */
/* Turns a command line into what is to be replayed, where and how. */
#ifndef FLEXTRACE_ARGUMENTS_H
#define FLEXTRACE_ARGUMENTS_H

#include <stdbool.h>

#include "replayer/engine/worker.h"

enum { EXIT_USAGE = 2, EXIT_NOT_TRUSTWORTHY = 3 };

enum phase { PHASE_ALL, PHASE_PREPARE, PHASE_RUN, PHASE_REMOVE };
enum direct_choice { DIRECT_RECORDED, DIRECT_ON, DIRECT_OFF };
enum sync_choice { SYNC_RECORDED, SYNC_OFF, SYNC_DSYNC, SYNC_SYNC };
enum computing_choice { COMPUTING_RECORDED, COMPUTING_OFF };
enum layout_choice { LAYOUT_ANY, LAYOUT_RECORDED };

struct arguments {
	const char *trace;
	const char *directory;
	int directory_descriptor; /* that was handed down; -1 = none */
	struct run_options run;
	int order; /* enum order_kind, -1 = as the trace needs */
	int cache;
	int phase;
	int direct; /* enum direct_choice */
	int sync; /* enum sync_choice */
	int layout; /* enum layout_choice */
	unsigned int data_percent;
	const char *memory_group;
	const char *device;
	const char *confirm;
	bool write;
	bool keep_image;
	bool force_space;
};

/* Names of the choices, by their numbers. */
extern const char *const timings[];
extern const char *const orders[];
extern const char *const caches[];
extern const char *const late_policies[];
extern const char *const directs[];
extern const char *const syncs[];
extern const char *const computings[];
extern const char *const layouts[];
extern const char *const phases[];

/* Ends the program with EXIT_USAGE and a message where the command line says nothing that can be done. */
void arguments_parse(struct arguments *arguments, int count, char **values);

#endif

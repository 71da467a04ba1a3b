/* SPDX-License-Identifier: Apache-2.0 */
/* Turns the counts of a run into the document flextrace.replay/1 on stdout. */
#ifndef FLEXTRACE_RESULT_H
#define FLEXTRACE_RESULT_H

#include "replayer/engine/cache_state.h"
#include "replayer/engine/worker.h"

struct result {
	const struct trace *trace;
	const struct file_table *table;
	const struct schedule *schedule;
	const struct image *image;
	const struct run *run; /* NULL when only the image was prepared */
	const struct run_options *options;
	const char *order;
	const char *timing;
	const char *cache;
	const char *phase;
	const char *stopped;
	const char *engine_why;
	const char *direct;
	const char *sync;
	const char *late;
	const char *layout;
	struct cache_report cache_report;
	bool ranges_cut; /* more cached ranges were recorded than can be kept */
};

/* Prints the document, without flushing it. Returns whether the result is to be trusted. */
bool result_print(const struct result *result);

#endif

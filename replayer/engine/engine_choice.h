/* SPDX-License-Identifier: Apache-2.0 */
/* Turns --engine, a trace and what the kernel allows into the engine of a run, and says why. */
#ifndef FLEXTRACE_ENGINE_CHOICE_H
#define FLEXTRACE_ENGINE_CHOICE_H

#include "replayer/engine/worker.h"

enum { ENGINE_WHY_BYTES = 160 };

/* Names in the order of enum engine, ended by NULL. */
extern const char *const engine_names[];

/* Settles options->engine and calls_stay. -errno, with a message, where the engine that was asked for cannot be had. */
int engine_choose(struct run_options *options, const struct file_table *table, char why[static ENGINE_WHY_BYTES]);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Turns what threads read at most into memory to read into, as far as the machine has it. */
#ifndef FLEXTRACE_READ_MEMORY_H
#define FLEXTRACE_READ_MEMORY_H

#include "replayer/engine/worker.h"

/*
 * Refuses (-ENOMEM) what would be killed for lack of memory: all recorded threads are there at once, each with memory of
 * its own, which is touched before the run. To be asked before anything is laid out.
 */
int read_memory_check(const struct schedule *schedule, const struct run_options *options);

/* That of one thread. 0 or -errno. */
int read_memory_map(struct worker *worker);

#endif

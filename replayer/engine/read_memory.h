/* SPDX-License-Identifier: Apache-2.0 */
/* Turns what threads read at most into memory to read into, as far as the machine has it. */
#ifndef FLEXTRACE_READ_MEMORY_H
#define FLEXTRACE_READ_MEMORY_H

#include "replayer/engine/worker.h"

/*
 * Refuses (-ENOMEM) what would be killed for lack of memory: all recorded threads are there at once, each with memory of
 * its own, which is touched before the run, and of a ring so are the requests that --depth lets be in flight. How many
 * overlap of a trace with times is known only when it runs: see below. To be asked before anything is laid out.
 */
int read_memory_check(const struct schedule *schedule, const struct run_options *options);

/* That of one thread. 0 or -errno. */
int read_memory_map(struct worker *worker);

/* When all threads have theirs: what is left is for requests in flight. */
void read_memory_share(struct run *run);

/* Has so much of it ready for one request, which has had *touched_bytes so far. -ENOMEM where too little is left. */
int read_memory_touch(struct run *run, uint64_t bytes, uint64_t *touched_bytes);

#endif

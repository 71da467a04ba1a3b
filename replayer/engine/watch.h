/* SPDX-License-Identifier: Apache-2.0 */
/* Turns a run that goes on into lines on stdout, and ends it at its time limit. */
#ifndef FLEXTRACE_WATCH_H
#define FLEXTRACE_WATCH_H

#include "replayer/engine/worker.h"

/*
 * Until all threads are done: prints the intervals, stops the run at its time limit, or when nobody is there to read its
 * result. The last interval, a part, is not printed.
 */
void watch_run(struct run *run, uint64_t start_ns);

#endif

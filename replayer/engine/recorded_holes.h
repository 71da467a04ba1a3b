/* SPDX-License-Identifier: Apache-2.0 */
/* Turns the HOLE records of a trace into the ranges of each file that had no data when it was recorded. */
#ifndef FLEXTRACE_RECORDED_HOLES_H
#define FLEXTRACE_RECORDED_HOLES_H

#include "replayer/engine/file_ranges.h"
#include "replayer/engine/trace_reader.h"

/*
 * Before the files of the trace are known: by their ids. Reads up to the last of as many such records as the header counts,
 * and gives the pages back behind. -ENOMEM; -EINTR after a stop.
 */
int recorded_holes_read(struct file_ranges *holes, const struct trace *trace);

#endif

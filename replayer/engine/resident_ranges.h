/* SPDX-License-Identifier: Apache-2.0 */
/* Turns the RESIDENT records of a trace into the ranges of each file that were in the page cache when it was recorded. */
#ifndef FLEXTRACE_RESIDENT_RANGES_H
#define FLEXTRACE_RESIDENT_RANGES_H

#include "replayer/engine/files.h"

/*
 * Reads the trace up to the last of as many such records as its header counts. `streams`: it may be larger than memory,
 * and its pages are given back behind. After a stop only what it has come to.
 */
int resident_ranges_read(struct file_ranges *ranges, const struct trace *trace, const struct file_table *table,
			 bool streams);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Turns measured times into members of the document flextrace.replay/1. */
#ifndef FLEXTRACE_RESULT_TIMES_H
#define FLEXTRACE_RESULT_TIMES_H

#include "replayer/engine/histogram.h"

/* Count, mean and percentiles. */
void print_times(const char *name, const struct histogram *histogram);

/* And the distribution: how many were below each power of two but not below the one before, where any were. */
void print_distribution(const char *name, const struct histogram *histogram);

#endif

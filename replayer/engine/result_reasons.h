/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns what was otherwise than when it was recorded into sentences of the document flextrace.replay/1: why a result is not
 * to be trusted, and what else there is to know of it.
 */
#ifndef FLEXTRACE_RESULT_REASONS_H
#define FLEXTRACE_RESULT_REASONS_H

#include "replayer/engine/accuracy.h"
#include "replayer/engine/result.h"

/* Prints a list of reasons not to trust the result; empty when there is none. Returns whether it is. */
bool print_reasons(const struct result *result, const struct tally *tally, const struct accuracy *accuracy);

void print_warnings(const struct result *result, const struct tally *tally, const struct accuracy *accuracy);

#endif

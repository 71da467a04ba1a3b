/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FLEXTRACE_PLAN_H
#define FLEXTRACE_PLAN_H

#include "options.h"
#include "tracer.h"

/* Says on standard output what a recording would do; the programs are loaded. The exit code. */
int plan_say(const struct options *options, const struct programs_wish *wish, const struct tracer *tracer,
	     const char *path);

#endif /* FLEXTRACE_PLAN_H */

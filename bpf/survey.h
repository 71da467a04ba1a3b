/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FLEXTRACE_SURVEY_H
#define FLEXTRACE_SURVEY_H

#include "options.h"

/* Says on standard output, as JSON, what this kernel and these privileges allow. The exit code. */
int survey_say(const struct options *options);

#endif /* FLEXTRACE_SURVEY_H */

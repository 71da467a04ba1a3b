/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FLEXTRACE_METADATA_H
#define FLEXTRACE_METADATA_H

#include <stdint.h>

#include "drain.h"
#include "options.h"
#include "tracer.h"

/*
 * The JSON block of a recording. drain is NULL before recording, when the counts are not known. To be freed; NULL = no
 * memory.
 */
char *metadata_make(const struct options *options, const struct tracer *tracer, const struct drain *drain,
		    int64_t exit_status);

#endif /* FLEXTRACE_METADATA_H */

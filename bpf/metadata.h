/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FLEXTRACE_METADATA_H
#define FLEXTRACE_METADATA_H

#include <stdint.h>

#include "closure.h"
#include "drain.h"
#include "first_sight.h"
#include "options.h"
#include "topology.h"
#include "tracer.h"

/* Why a recording ended. */
enum stop {
	STOP_NOT_YET = 0,
	STOP_END, /* of the target */
	STOP_SIGNAL,
	STOP_MAX_TIME,
	STOP_MAX_SIZE,
	STOP_FAILED,
};

/* What is known of a recording besides its records. */
struct metadata {
	const struct options *options;
	const struct tracer *tracer; /* NULL before the programs are loaded */
	/* From here on NULL before the end. */
	const struct drain *drain;
	const struct topology *topology;
	const struct closure *closure;
	const struct processor_use *processors;
	const struct first_sight *first_sight;
	const struct trace_header *header;
	enum stop stopped_by;
	int64_t exit_status; /* of the command; -1 = not known */
};

extern const char *const kind_names[TRACE_KINDS_MAX]; /* NULL where there is no such kind */

/* The JSON block of the trace. To be freed; NULL = no memory. */
char *metadata_make(const struct metadata *metadata);

#endif /* FLEXTRACE_METADATA_H */

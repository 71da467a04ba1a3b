/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FLEXTRACE_SESSION_H
#define FLEXTRACE_SESSION_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "closure.h"
#include "device_filter.h"
#include "drain.h"
#include "first_sight.h"
#include "losses.h"
#include "metadata.h"
#include "options.h"
#include "status.h"
#include "target.h"
#include "topology.h"
#include "tracer.h"
#include "writer.h"

/* Everything of one recording. */
struct session {
	const struct options *options;
	const char *path;
	struct programs_wish wish;
	struct target target;
	struct tracer tracer;
	struct writer writer;
	struct drain drain;
	struct losses losses;
	struct first_sight first_sight;
	struct topology topology;
	struct closure closure;
	struct processor_use processors; /* before it began; at the end, since then */
	struct status status;
	dev_t trace_filesystem;
	struct device_filter device_filter; /* of --device */
	int signals; /* signalfd */
	int signal_count;
	uint64_t signalled_ns; /* when the one that waits to be taken was seen, 0 = none */
	uint64_t ends_ns; /* CLOCK_MONOTONIC, 0 = no limit */
	int interval_ms; /* to the next round */
	bool hurries; /* the last round had something to look up */
	enum stop stopped_by;
	bool loss_said;
};

/* With options, path, wish, target, signals, the tracer and the trace file there: records. The exit code. */
int session_record(struct session *session);

#endif /* FLEXTRACE_SESSION_H */

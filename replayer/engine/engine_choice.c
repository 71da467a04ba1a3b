// SPDX-License-Identifier: Apache-2.0
// Turns --engine, a trace and what the kernel allows into the engine of a run.
#include <stdio.h>
#include <string.h>

#include "replayer/engine/engine_choice.h"
#include "replayer/engine/message.h"
#include "replayer/engine/ring.h"

const char *const engine_names[] = {"auto", "sync", "io_uring", "null", NULL};

/* Why the trace wants requests in flight at once within a thread, or NULL. */
static const char *reason_for_ring(const struct run_options *options, const struct file_table *table)
{
	if (options->depth > 1)
		return "--depth asks for several requests in flight per thread";
	if (table->asynchronous)
		return "requests were made by AIO or io_uring when recorded";
	return table->overlapping ? "requests of one thread overlap" : NULL;
}

int engine_choose(struct run_options *options, const struct file_table *table, char why[static ENGINE_WHY_BYTES])
{
	bool automatic = options->engine == ENGINE_AUTO;
	const char *reason = reason_for_ring(options, table);

	if (!automatic && options->engine != ENGINE_URING) {
		snprintf(why, ENGINE_WHY_BYTES, "asked for");
		return 0;
	}
	if (automatic && !reason) {
		options->engine = ENGINE_SYNC;
		snprintf(why, ENGINE_WHY_BYTES, "no requests of one thread were in flight at once");
		return 0;
	}
	int error = ring_probe();
	options->engine = error ? ENGINE_SYNC : ENGINE_URING;
	options->calls_stay = automatic && options->depth <= 1;
	if (!error)
		snprintf(why, ENGINE_WHY_BYTES, "%s", automatic ? reason : "asked for");
	else if (automatic)
		snprintf(why, ENGINE_WHY_BYTES, "%s, but the kernel refuses io_uring: %s", reason, strerror(-error));
	else
		complain(
			"the kernel refuses io_uring: %s; look at /proc/sys/kernel/io_uring_disabled and the seccomp filter of this container, or use --engine sync",
			strerror(-error));
	return automatic ? 0 : error;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Turns a trace into the segments of a schedule: the first one before a run, the others beside it, by a thread. */
#ifndef FLEXTRACE_FEED_H
#define FLEXTRACE_FEED_H

#include <pthread.h>
#include <stdbool.h>

#include "replayer/engine/segment.h"

struct feed {
	struct segment_builder builder;
	bool loop; /* the trace begins again after its last segment */
	bool running;
	pthread_t thread;
};

/* Builds the first segment of an initialized schedule. */
int feed_init(struct feed *feed, struct schedule *schedule, bool loop);

/* Builds the others, if there are any, until the schedule's stop is set. */
int feed_start(struct feed *feed);
/* Waits for its end, for so many seconds at most; false where storage does not give back what it reads of the trace. */
bool feed_join(struct feed *feed, unsigned int seconds);
void feed_free(struct feed *feed);

#endif

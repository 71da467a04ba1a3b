/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns a number of processors into threads that keep them busy, as programs did that ran beside a recording and are not in
 * it: a server's clients, say. They compute and sleep in turns, and touch nothing.
 */
#ifndef FLEXTRACE_OTHERS_H
#define FLEXTRACE_OTHERS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

enum { OTHERS_MAX = 256 };

struct others {
	double processors; /* to be kept busy; 0 = nothing is started */
	uint64_t burst_ns; /* for how long at a time, in the mean */
	uint32_t count; /* threads */
	pthread_t threads[OTHERS_MAX];
	atomic_bool stop;
};

/* Starts them. 0 or a negative errno. */
int others_init(struct others *others, double processors, uint64_t burst_ns);
void others_deinit(struct others *others);

#endif

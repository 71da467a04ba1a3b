/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns the page faults that a request had of its caller's memory into as many of the replay's: takes pages away from
 * under its buffer before it is due (docs/decisions/0010).
 */
#ifndef FLEXTRACE_FIRST_TOUCH_H
#define FLEXTRACE_FIRST_TOUCH_H

#include "replayer/engine/worker.h"

/* Of a run that has a time for it: not of --timing asap, in which it would delay what follows. */
void first_touch_prepare(struct worker *worker, const struct io_record *io, uint32_t number);

#endif

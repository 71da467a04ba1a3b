/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns the page faults that a request had of its caller's memory into as many of the replay's: takes pages away from
 * under its buffer before it is due (docs/decisions/0010).
 */
#ifndef FLEXTRACE_FIRST_TOUCH_H
#define FLEXTRACE_FIRST_TOUCH_H

#include "replayer/engine/worker.h"

/*
 * A caller whose memory for a read begins within a page touches one page more than one whose begins with it: so the data
 * of a read with as many faults lies this far behind the beginning of a page. Of a run with times, and not of O_DIRECT,
 * which has to lie on whole sectors of any size.
 */
enum { FIRST_TOUCH_STRADDLE_BYTES = 128 };

/* Where the data of a read goes to. */
uint8_t *first_touch_read_data(const struct worker *worker, const struct io_record *io, uint32_t number);

/* Of a run that has a time for it: not of --timing asap, in which it would delay what follows. */
void first_touch_prepare(struct worker *worker, const struct io_record *io, uint32_t number);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FLEXTRACE_STATUS_H
#define FLEXTRACE_STATUS_H

#include <stdbool.h>
#include <stdint.h>

#include "writer.h"

/* The line on the terminal that says how the recording goes. */
struct status {
	bool shown; /* stderr is a terminal and nobody asked for quiet */
	bool on_screen;
	uint64_t began_ns, drawn_ns;
	uint64_t records_drawn; /* written when it was drawn last */
};

void status_init(struct status *status, bool quiet);
/* Draws it anew once a second. */
void status_update(struct status *status, const struct writer *writer, uint64_t lost);
/* Before anything else is said. */
void status_clear(struct status *status);

#endif /* FLEXTRACE_STATUS_H */

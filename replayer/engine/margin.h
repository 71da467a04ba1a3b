/* SPDX-License-Identifier: Apache-2.0 */
/* Turns how late wake-ups are into how long before a due time to wake up: what one in LATE_ONE_IN of them exceeds. */
#ifndef FLEXTRACE_MARGIN_H
#define FLEXTRACE_MARGIN_H

#include <stdint.h>

enum {
	MARGIN_NS_MIN = 20 * 1000,
	MARGIN_NS_MAX = 300 * 1000,
	MARGIN_STEP_NS = 20 * 1000,
	LATE_ONE_IN = 1000,
};

static inline uint64_t margin_between(uint64_t margin_ns)
{
	if (margin_ns < MARGIN_NS_MIN)
		return MARGIN_NS_MIN;
	return margin_ns > MARGIN_NS_MAX ? MARGIN_NS_MAX : margin_ns;
}

/* Up by a step after a wake-up that came later, down by as small a part of it after one that did not. */
static inline uint64_t margin_after(uint64_t margin_ns, uint64_t late_ns)
{
	if (late_ns > margin_ns)
		return margin_between(margin_ns + MARGIN_STEP_NS);
	return margin_between(margin_ns - MARGIN_STEP_NS / LATE_ONE_IN);
}

#endif

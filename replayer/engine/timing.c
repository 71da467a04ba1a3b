// SPDX-License-Identifier: Apache-2.0
// Turns a due time into waiting until it.
#include <sys/prctl.h>
#include <unistd.h>

#include "replayer/engine/timing.h"

enum {
	CALIBRATION_SLEEPS = 50,
	CALIBRATION_NS = 100 * 1000,
	MARGIN_NS_MIN = 20 * 1000,
	MARGIN_NS_MAX = 300 * 1000,
	SLICE_NS = 50 * 1000 * 1000, /* how long a stop may go unseen */
};

static void sleep_until(uint64_t due_ns)
{
	struct timespec due = {(time_t)(due_ns / 1000000000u), (long)(due_ns % 1000000000u)};

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL);
}

void pacer_init(struct pacer *pacer, const atomic_bool *stop)
{
	uint64_t late_max_ns = 0;

	*pacer = (struct pacer){.stop = stop};
	long processors = sysconf(_SC_NPROCESSORS_ONLN);
	pacer->spinners_max = processors > 2 ? (int)processors - 1 : 1;
	/* The default slack of 50 us would be the largest part of the lateness; threads inherit this. */
	prctl(PR_SET_TIMERSLACK, 1);
	for (int i = 0; i < CALIBRATION_SLEEPS; i++) {
		uint64_t due_ns = now_ns() + CALIBRATION_NS;

		sleep_until(due_ns);
		uint64_t late_ns = now_ns() - due_ns;
		if (late_ns > late_max_ns)
			late_max_ns = late_ns;
	}
	pacer->margin_ns = late_max_ns < MARGIN_NS_MIN ? MARGIN_NS_MIN : late_max_ns;
	if (pacer->margin_ns > MARGIN_NS_MAX)
		pacer->margin_ns = MARGIN_NS_MAX;
}

bool pacer_may_spin(struct pacer *pacer)
{
	if (atomic_fetch_add_explicit(&pacer->spinners, 1, memory_order_relaxed) < pacer->spinners_max)
		return true;
	pacer_spun(pacer);
	return false;
}

void pacer_spun(struct pacer *pacer)
{
	atomic_fetch_sub_explicit(&pacer->spinners, 1, memory_order_relaxed);
}

void pacer_wait_until(struct pacer *pacer, uint64_t due_ns)
{
	uint64_t now = now_ns();

	while (now + pacer->margin_ns < due_ns) {
		if (atomic_load_explicit(pacer->stop, memory_order_relaxed))
			return;
		uint64_t wake_ns = due_ns - pacer->margin_ns;

		sleep_until(wake_ns - now > SLICE_NS ? now + SLICE_NS : wake_ns);
		now = now_ns();
	}
	if (now >= due_ns)
		return;
	if (!pacer_may_spin(pacer)) {
		sleep_until(due_ns);
		return;
	}
	while (now_ns() < due_ns)
		pause_processor();
	pacer_spun(pacer);
}

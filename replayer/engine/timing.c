// SPDX-License-Identifier: Apache-2.0
// Turns a due time into waiting until it.
#include <sched.h>
#include <sys/prctl.h>

#include "replayer/engine/margin.h"
#include "replayer/engine/timing.h"

enum {
	CALIBRATION_SLEEPS = 100,
	CALIBRATION_NS = 100 * 1000,
	YIELDING_PER_PROCESSOR = 4, /* that spin and let others go first; of more, each waits long for its turn */
	LOOKS = 100, /* at the clock, to find out how long one takes */
	LOST_LOOKS = 8, /* what takes as long as so many, and longer than this, is more than a look: */
	LOST_NS = 2 * 1000,
	SLEEP_NS_MIN = 10 * 1000, /* shorter ones are mostly the way to sleep and back */
	SLICE_NS_PER_THREAD = 500 * 1000, /* 2000 looks a second, of all threads */
	SLICE_NS_MAX = 1000 * 1000 * 1000,
};

/* How late wake-ups are here, at worst. */
static uint64_t measure_wake_up(void)
{
	uint64_t late_max_ns = 0;

	for (int i = 0; i < CALIBRATION_SLEEPS; i++) {
		uint64_t due_ns = now_ns() + CALIBRATION_NS;

		sleep_until(due_ns);
		uint64_t now = now_ns();
		/* A signal ends a sleep too early. */
		if (now > due_ns && now - due_ns > late_max_ns)
			late_max_ns = now - due_ns;
	}
	return late_max_ns;
}

static uint64_t slice_of(uint32_t threads)
{
	uint64_t slice_ns = (uint64_t)threads * SLICE_NS_PER_THREAD;

	if (slice_ns < SLICE_NS)
		return SLICE_NS;
	return slice_ns < SLICE_NS_MAX ? slice_ns : SLICE_NS_MAX;
}

/* What passes between two looks at the clock where a thread did not have its processor, at least. */
static uint64_t measure_lost(void)
{
	uint64_t look_ns = UINT64_MAX, now = now_ns();

	for (int i = 0; i < LOOKS; i++) {
		uint64_t before = now;

		pause_processor();
		now = now_ns();
		look_ns = now - before < look_ns ? now - before : look_ns;
	}
	return LOST_LOOKS * look_ns > LOST_NS ? LOST_LOOKS * look_ns : LOST_NS;
}

void pacer_init(struct pacer *pacer, enum timing timing, uint32_t threads, uint32_t processors_max,
		const atomic_bool *stop)
{
	cpu_set_t processors;

	*pacer = (struct pacer){
		.stop = stop, .awake = (int)threads, .exact = timing == TIMING_RECORDED, .slice_ns = slice_of(threads)};
	/* The default slack of 50 us would be the largest part of the lateness; threads inherit this. */
	prctl(PR_SET_TIMERSLACK, 1);
	/* Who spins takes a processor; the storage stack needs one. On a machine with a single one nobody spins. */
	if (sched_getaffinity(0, sizeof(processors), &processors) == 0)
		pacer->processors = CPU_COUNT(&processors);
	if (processors_max && pacer->processors > (int)processors_max)
		pacer->processors = (int)processors_max;
	pacer->wake_up_ns = measure_wake_up();
	pacer->lost_ns = measure_lost();
	if (pacer->processors < 2)
		return;
	pacer->crowded = threads >= (uint32_t)pacer->processors;
	pacer->spinners_max = pacer->processors - 1;
	if (pacer->crowded && pacer->exact)
		pacer->spinners_max = YIELDING_PER_PROCESSOR * pacer->processors;
	pacer->margin_ns = margin_between(pacer->wake_up_ns);
}

void pacer_pause(const struct pacer *pacer)
{
	if (pacer->crowded)
		sched_yield();
	else
		pause_processor();
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

static uint64_t margin_of(const struct pacer *pacer)
{
	return atomic_load_explicit(&pacer->margin_ns, memory_order_relaxed);
}

/* The worst of those at the start is exceeded by one wake-up in a hundred. Of two threads' corrections at once one is lost. */
static void correct_margin(struct pacer *pacer, uint64_t late_ns)
{
	uint64_t margin_ns = margin_of(pacer);

	if (margin_ns && pacer->exact)
		atomic_store_explicit(&pacer->margin_ns, margin_after(margin_ns, late_ns), memory_order_relaxed);
}

/* Sleeps until margin_ns before due_ns, or a stop; returns the time. */
static uint64_t sleep_near(struct pacer *pacer, uint64_t due_ns, uint64_t margin_ns)
{
	uint64_t now = now_ns();

	while (now + margin_ns < due_ns && !atomic_load_explicit(pacer->stop, memory_order_relaxed)) {
		uint64_t wake_ns = due_ns - margin_ns;

		if (wake_ns - now > pacer->slice_ns)
			wake_ns = now + pacer->slice_ns;
		pacer_asleep(pacer);
		sleep_until(wake_ns);
		pacer_awake(pacer);
		now = now_ns();
		if (now > wake_ns)
			correct_margin(pacer, now - wake_ns);
	}
	return now;
}

void pacer_wait_until(struct pacer *pacer, uint64_t due_ns)
{
	uint64_t now = sleep_near(pacer, due_ns, margin_of(pacer));

	if (now >= due_ns || atomic_load_explicit(pacer->stop, memory_order_relaxed))
		return;
	if (!pacer_may_spin(pacer)) {
		pacer_asleep(pacer);
		sleep_until(due_ns);
		pacer_awake(pacer);
		return;
	}
	while (now_ns() < due_ns)
		pacer_pause(pacer);
	pacer_spun(pacer);
}

static void compute_until(const struct pacer *pacer, uint64_t until_ns)
{
	while (now_ns() < until_ns && !atomic_load_explicit(pacer->stop, memory_order_relaxed))
		pause_processor();
}

/* Until it has had a processor for so long, or a stop; returns the time. */
static uint64_t compute_for(const struct pacer *pacer, uint64_t compute_ns)
{
	uint64_t now = now_ns(), had_ns = 0;

	while (had_ns < compute_ns && !atomic_load_explicit(pacer->stop, memory_order_relaxed)) {
		uint64_t before = now;

		pause_processor();
		now = now_ns();
		/* Somebody else had the processor in between; but a clock that has become slow must not stop it either. */
		had_ns += now - before < pacer->lost_ns ? now - before : pacer->lost_ns / LOST_LOOKS;
	}
	return now;
}

/* How often a thread sleeps that computes for compute_ns and sleeps for sleep_ns. */
static uint64_t sleeps_between(const struct pacer *pacer, uint64_t compute_ns, uint64_t sleep_ns)
{
	if (!pacer->burst_ns)
		return 1;
	uint64_t bursts = (compute_ns + pacer->burst_ns / 2) / pacer->burst_ns;
	uint64_t sleeps = bursts > 2 ? bursts - 1 : 1, sleeps_max = sleep_ns / SLEEP_NS_MIN + 1;

	return sleeps < sleeps_max ? sleeps : sleeps_max;
}

void pacer_compute_until(struct pacer *pacer, uint64_t due_ns, uint64_t compute_ns)
{
	uint64_t now = now_ns(), left_ns = compute_ns;

	if (now + compute_ns < due_ns) {
		uint64_t sleeps = sleeps_between(pacer, compute_ns, due_ns - now - compute_ns);
		uint64_t burst_ns = compute_ns / (sleeps + 1);

		/* Who waits for a processor meanwhile sleeps for less, as who was recorded so did not sleep then. */
		for (uint64_t left = sleeps; left; left--) {
			now = compute_for(pacer, burst_ns);
			left_ns -= burst_ns;
			if (now + left_ns >= due_ns)
				break;
			if (left == 1 && burst_ns < margin_of(pacer)) {
				pacer_wait_until(pacer, due_ns);
				return;
			}
			sleep_near(pacer, now + (due_ns - now - left_ns) / left, 0);
		}
		compute_for(pacer, left_ns);
	}
	compute_until(pacer, due_ns);
}

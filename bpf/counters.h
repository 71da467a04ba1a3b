/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FLEXTRACE_COUNTERS_H
#define FLEXTRACE_COUNTERS_H

#include "ring_event.h"
#include "tracer.h"

/* Of all CPUs together. What cannot be read is 0. */
uint64_t counters_skip(const struct tracer *tracer, enum skip skip);
struct total counters_total(const struct tracer *tracer, uint8_t op, uint8_t source);
struct account counters_account(const struct tracer *tracer, enum account_side side);
struct processor_use counters_processor_use(const struct tracer *tracer);
/* Runs that the kernel left out because the program was already running on that CPU: what they would have told is missing. */
struct missed_runs {
	const char *program;
	uint64_t count;
};

enum { MISSED_PROGRAMS_MAX = 64 };

/* Of the programs that missed any; returns how many these are. */
int counters_missed_runs(const struct tracer *tracer, struct missed_runs of[MISSED_PROGRAMS_MAX]);
/* At most so many records are missing for them: the programs also run for what nobody traces. */
uint64_t counters_missed_records(const struct tracer *tracer);
uint64_t counters_in_flight_max(const struct tracer *tracer);
/* Data operations that have begun, and whose end was not seen yet. */
uint64_t counters_in_flight(const struct tracer *tracer);
/* Records that were lost because their file was one more than are told apart. */
uint64_t counters_lost_beyond(const struct tracer *tracer);
/* Records that were lost because there was no room in a ring, and for no other reason. */
uint64_t counters_lost_for_room(const struct tracer *tracer);
/* Files whose records found no room, and were never sent after that. */
uint64_t counters_files_unsent(const struct tracer *tracer);
/* Traced threads that go on after the end of recording. */
uint64_t counters_tasks_left(const struct tracer *tracer);
/* Nothing for a device that has completed nothing. */
struct device_total counters_device(const struct tracer *tracer, uint32_t device);
/* Another number after each loss: in memory, while to read the losses themselves takes a system call. */
uint64_t counters_losses_counted(const struct tracer *tracer);
/* of[kind * cpu_count + cpu] for all TRACE_KINDS_MAX kinds. 0 or a negative errno. */
int counters_losses(const struct tracer *tracer, struct loss *of);

#endif /* FLEXTRACE_COUNTERS_H */

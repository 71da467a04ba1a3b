// SPDX-License-Identifier: Apache-2.0
// Turns the result of every operation into counts.
#include <stdlib.h>

#include "replayer/engine/message.h"
#include "replayer/engine/tally.h"

void tally_result(struct tally *tally, enum operation_kind kind, int64_t recorded, int64_t result)
{
	enum outcome outcome = OUTCOME_DONE;

	if (result < 0) {
		if (recorded != result) {
			outcome = OUTCOME_FAILED;
			tally->errors[-result < ERRNO_MAX ? -result : ERRNO_MAX]++;
			tally->mismatches[recorded < 0 ? MISMATCH_OTHER_ERROR : MISMATCH_FAILED]++;
		}
	} else if (recorded < 0) {
		tally->mismatches[MISMATCH_SUCCEEDED]++;
	} else if (kind == KIND_IO && result < recorded) {
		outcome = OUTCOME_SHORT;
		tally->mismatches[MISMATCH_SHORT]++;
	} else if (kind == KIND_IO && result > recorded) {
		tally->mismatches[MISMATCH_LONGER]++;
	}
	tally->records[kind]++;
	tally->outcomes[kind][outcome]++;
}

void tally_merge(struct tally *into, const struct tally *from)
{
	/* Every member is an array of, or a, uint64_t. */
	_Static_assert(sizeof(*into) % sizeof(uint64_t) == 0, "only counters");
	uint64_t *to = (uint64_t *)into;
	const uint64_t *source = (const uint64_t *)from;

	for (size_t i = 0; i < sizeof(*into) / sizeof(*to); i++)
		to[i] += source[i];
}

void tally_assert(const struct tally *tally)
{
	for (int kind = 0; kind < OPERATION_KINDS; kind++) {
		uint64_t sum = 0;

		for (int outcome = 0; outcome < OUTCOMES; outcome++)
			sum += tally->outcomes[kind][outcome];
		if (sum != tally->records[kind]) {
			complain("internal error: %llu records, but %llu outcomes; please report it with the trace",
				 (unsigned long long)tally->records[kind], (unsigned long long)sum);
			abort();
		}
	}
}

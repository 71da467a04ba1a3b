/* SPDX-License-Identifier: Apache-2.0 */
/* Turns the result of every operation into counts: records = done + short + failed + skipped, always. */
#ifndef FLEXTRACE_TALLY_H
#define FLEXTRACE_TALLY_H

#include <stdint.h>

enum outcome { OUTCOME_DONE, OUTCOME_SHORT, OUTCOME_FAILED, OUTCOME_SKIPPED, OUTCOMES };

enum operation_kind { KIND_IO, KIND_FILEOP, OPERATION_KINDS };

/* In what way a result differs from the recorded one. */
enum mismatch {
	MISMATCH_SHORT, /* fewer bytes */
	MISMATCH_LONGER, /* more bytes */
	MISMATCH_FAILED, /* failed, did not when recorded */
	MISMATCH_SUCCEEDED, /* did not fail, did when recorded */
	MISMATCH_OTHER_ERROR, /* failed in another way */
	MISMATCHES,
};

enum skip_reason {
	SKIP_UNKNOWN_FILE, /* no file id, or one that is damaged */
	SKIP_UNKNOWN_OPERATION, /* of a newer format version, or damaged */
	SKIP_CALLER_ERROR, /* failed by the caller's own bad pointer, descriptor or signal, which is not in the trace */
	SKIP_RECORDED_FAILURE, /* an open, rename, write, ... that failed when recorded: it changed nothing, and here might */
	SKIP_NO_SUCH_FILE, /* removed, or never made, at this point of the replay */
	SKIP_NOT_OPEN, /* a close without a descriptor */
	SKIP_SHARED_DESCRIPTOR, /* closes one of several, or the last of a removed file that is still used: one stays */
	SKIP_PROGRAM_PAGE, /* of the text of a program or library, which the replay does not run */
	SKIP_LATE, /* --late skip: too far behind the schedule */
	SKIP_SYNC_OFF, /* --sync off */
	SKIP_WRITES_OFF, /* would change a device that may only be read */
	SKIP_DEVICE_NAME, /* renames, links or removes the name of a device */
	SKIP_STOPPED, /* the replay was stopped before */
	SKIP_REASONS,
};

enum { ERRNO_MAX = 200 };

struct tally {
	uint64_t records[OPERATION_KINDS];
	uint64_t outcomes[OPERATION_KINDS][OUTCOMES];
	uint64_t mismatches[MISMATCHES];
	uint64_t skipped[SKIP_REASONS];
	uint64_t errors[ERRNO_MAX + 1];
	uint64_t bytes[2]; /* read, written */
	uint64_t requests[2];
	uint64_t late; /* operations that began later than what is still trustworthy, though they could have begun */
	uint64_t behind; /* that began later than that behind the schedule */
	uint64_t unaligned[2]; /* direct requests that went through the page cache: by --direct on, as recorded */
	uint64_t sync_changed; /* writes that --sync made synchronous in another way than recorded, or not at all */
	uint64_t submits; /* calls that handed requests to the kernel */
	uint64_t submits_blocked; /* of them, longer than SUBMIT_BLOCKED_NS */
	uint64_t submits_blocked_ns;
};

static inline void tally_skip(struct tally *tally, enum operation_kind kind, enum skip_reason reason, uint64_t count)
{
	tally->records[kind] += count;
	tally->outcomes[kind][OUTCOME_SKIPPED] += count;
	tally->skipped[reason] += count;
}

/* Of both kinds of operations. */
static inline uint64_t tally_outcomes(const struct tally *tally, enum outcome outcome)
{
	return tally->outcomes[KIND_IO][outcome] + tally->outcomes[KIND_FILEOP][outcome];
}

/* result and recorded: bytes or 0, or -errno. */
void tally_result(struct tally *tally, enum operation_kind kind, int64_t recorded, int64_t result);
void tally_merge(struct tally *into, const struct tally *from);

/* Ends the program when the counts do not add up. */
void tally_assert(const struct tally *tally);

#endif

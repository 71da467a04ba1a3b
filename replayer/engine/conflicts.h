/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns accesses, as they start and end in the order of the recording, into what each operation has to wait for: those of
 * other threads that ended before it started and conflict with it (access.h), but for those that are waited for anyway.
 *
 * Of each resource the last access of every kind and thread is kept, newest end first; more than one of a thread only
 * where they overlapped. Not needed are those
 * - that an earlier access of the same kind by the same thread has found: all that ended before that one started;
 * - that some access in between has waited for, which conflicts with whatever these conflict with;
 * - that had ended before something started that this thread has waited for (kept for up to KNOWN_THREADS_MAX threads);
 * - whose memory was given away, since they have completed.
 */
#ifndef FLEXTRACE_CONFLICTS_H
#define FLEXTRACE_CONFLICTS_H

#include <stdbool.h>
#include <stdint.h>

#include "replayer/engine/access.h"

enum { KNOWN_THREADS_MAX = 256, CONFLICTS_MAX = 32 };

/* An operation as the planning sees it. */
struct subject {
	uint64_t start_ns, end_ns;
	uint64_t place; /* as in order.h */
	uint32_t thread; /* index */
	uint32_t process;
	struct names_found names; /* as it started */
	const union record *record;
};

struct last_access;
struct known;

struct conflicts {
	struct names names;
	uint32_t threads;
	uint64_t recycled; /* as in order.h */
	uint32_t *newest; /* access by resource and kind */
	struct last_access *accesses; /* [0] is none */
	uint32_t count, room;
	uint32_t *buckets; /* accesses by resource, kind and thread; as many as there is room */
	uint32_t free; /* chain of free ones */
	struct known *known; /* by two threads; NULL with too many of them */
};

/* What an operation has to wait for. */
struct waits {
	struct subject list[CONFLICTS_MAX];
	uint32_t count;
	bool too_many; /* the list has not all of it */
};

int conflicts_init(struct conflicts *conflicts, const struct file_table *table, uint32_t threads);
void conflicts_reset(struct conflicts *conflicts); /* nothing has happened yet */
void conflicts_free(struct conflicts *conflicts);

/* All places below `recycled` have completed. */
void conflicts_recycle(struct conflicts *conflicts, uint64_t recycled);

/* In the order of the starts. */
void conflicts_start(struct conflicts *conflicts, const struct subject *subject, struct waits *waits);

/* In the order of the ends, those that ended before a start before that. False when there is no memory. */
bool conflicts_end(struct conflicts *conflicts, const struct subject *subject);

#endif

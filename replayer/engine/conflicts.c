// SPDX-License-Identifier: Apache-2.0
// Turns accesses, as they start and end, into what each operation has to wait for.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "replayer/engine/conflicts.h"

enum { ROOM_MIN = 1024 };

struct last_access {
	struct subject subject;
	uint32_t line; /* resource and kind */
	uint32_t newer, older; /* of the same line */
	uint32_t next; /* in the same bucket, or free */
};

/* The latest operation of one thread that another one has waited for. */
struct known {
	uint64_t start_ns;
	uint64_t place;
};

static bool precedes(const struct subject *subject, uint64_t time_ns)
{
	return ended_before(subject->start_ns, subject->end_ns, time_ns);
}

static uint32_t line_of(uint32_t resource, uint8_t kind)
{
	return resource * ACCESS_KINDS + kind;
}

static uint32_t *bucket_of(const struct conflicts *conflicts, uint32_t line, uint32_t thread)
{
	uint64_t hash = ((uint64_t)line << 32 | thread) * 0x9e3779b97f4a7c15ull;

	return &conflicts->buckets[(hash >> 32) & (conflicts->room - 1)];
}

/* The buckets are those of the new room; all accesses are put into them again. */
static void fill_buckets(struct conflicts *conflicts)
{
	memset(conflicts->buckets, 0, conflicts->room * sizeof(*conflicts->buckets));
	conflicts->free = 0;
	for (uint32_t i = conflicts->count - 1; i > 0; i--) {
		struct last_access *access = &conflicts->accesses[i];
		uint32_t *first = access->line == UINT32_MAX
					  ? &conflicts->free
					  : bucket_of(conflicts, access->line, access->subject.thread);

		access->next = *first;
		*first = i;
	}
}

static bool set_room(struct conflicts *conflicts, uint32_t room)
{
	struct last_access *accesses = reallocarray(conflicts->accesses, room, sizeof(*accesses));

	if (accesses)
		conflicts->accesses = accesses;
	uint32_t *buckets = reallocarray(conflicts->buckets, room, sizeof(*buckets));
	if (buckets)
		conflicts->buckets = buckets;
	if (!accesses || !buckets)
		return false;
	conflicts->room = room;
	fill_buckets(conflicts);
	return true;
}

int conflicts_init(struct conflicts *conflicts, const struct file_table *table, uint32_t threads)
{
	*conflicts = (struct conflicts){.threads = threads, .count = 1};
	if (names_init(&conflicts->names, table))
		return -ENOMEM;
	conflicts->newest = calloc((size_t)access_resources(table) * ACCESS_KINDS, sizeof(*conflicts->newest));
	if (threads <= KNOWN_THREADS_MAX)
		conflicts->known = calloc((size_t)threads * threads, sizeof(*conflicts->known));
	bool complete = conflicts->newest && (conflicts->known || threads > KNOWN_THREADS_MAX);
	return complete && set_room(conflicts, ROOM_MIN) ? 0 : -ENOMEM;
}

void conflicts_reset(struct conflicts *conflicts)
{
	names_reset(&conflicts->names);
	memset(conflicts->newest, 0,
	       (size_t)access_resources(conflicts->names.table) * ACCESS_KINDS * sizeof(*conflicts->newest));
	if (conflicts->known)
		memset(conflicts->known, 0,
		       (size_t)conflicts->threads * conflicts->threads * sizeof(*conflicts->known));
	conflicts->count = 1;
	fill_buckets(conflicts);
}

void conflicts_free(struct conflicts *conflicts)
{
	names_free(&conflicts->names);
	free(conflicts->newest);
	free(conflicts->accesses);
	free(conflicts->buckets);
	free(conflicts->known);
	*conflicts = (struct conflicts){0};
}

/* Out of its line; its bucket is the caller's to care for. */
static void leave_line(struct conflicts *conflicts, struct last_access *access)
{
	if (access->newer)
		conflicts->accesses[access->newer].older = access->older;
	else
		conflicts->newest[access->line] = access->older;
	if (access->older)
		conflicts->accesses[access->older].newer = access->newer;
}

static void forget(struct conflicts *conflicts, uint32_t index)
{
	struct last_access *access = &conflicts->accesses[index];
	uint32_t *next = bucket_of(conflicts, access->line, access->subject.thread);

	while (*next != index)
		next = &conflicts->accesses[*next].next;
	*next = access->next;
	leave_line(conflicts, access);
	access->line = UINT32_MAX;
	access->next = conflicts->free;
	conflicts->free = index;
}

void conflicts_recycle(struct conflicts *conflicts, uint64_t recycled)
{
	conflicts->recycled = recycled;
}

/* Has a free one ready: one that has completed, or room for more. */
static bool make_room(struct conflicts *conflicts)
{
	uint32_t freed = 0;

	if (conflicts->free || conflicts->count < conflicts->room)
		return true;
	for (uint32_t i = 1; i < conflicts->count; i++) {
		if (conflicts->accesses[i].subject.place >= conflicts->recycled)
			continue;
		forget(conflicts, i);
		freed++;
	}
	/* Less often than it is worth going through all of them. */
	return freed > conflicts->room / 4 || set_room(conflicts, 2 * conflicts->room);
}

static bool remember(struct conflicts *conflicts, const struct subject *subject, uint32_t line)
{
	/* Those that this one comes after in its thread are no longer the last. */
	for (uint32_t at = *bucket_of(conflicts, line, subject->thread), next; at; at = next) {
		const struct last_access *access = &conflicts->accesses[at];

		next = access->next;
		if (access->line == line && access->subject.thread == subject->thread &&
		    precedes(&access->subject, subject->start_ns))
			forget(conflicts, at);
	}
	if (!make_room(conflicts))
		return false;
	uint32_t index = conflicts->free;
	if (index)
		conflicts->free = conflicts->accesses[index].next;
	else
		index = conflicts->count++;
	uint32_t *bucket = bucket_of(conflicts, line, subject->thread);
	uint32_t older = conflicts->newest[line];

	conflicts->accesses[index] =
		(struct last_access){.subject = *subject, .line = line, .older = older, .next = *bucket};
	*bucket = index;
	if (older)
		conflicts->accesses[older].newer = index;
	conflicts->newest[line] = index;
	return true;
}

/* When the latest access of a line by a thread started: what had ended before is known to it. */
static uint64_t seen_until(const struct conflicts *conflicts, uint32_t line, uint32_t thread)
{
	uint64_t start_ns = 0;

	for (uint32_t at = *bucket_of(conflicts, line, thread); at; at = conflicts->accesses[at].next) {
		const struct last_access *access = &conflicts->accesses[at];

		if (access->line == line && access->subject.thread == thread && access->subject.start_ns > start_ns)
			start_ns = access->subject.start_ns;
	}
	return start_ns;
}

static bool is_known(const struct conflicts *conflicts, const struct subject *earlier, uint32_t thread)
{
	if (!conflicts->known)
		return false;
	const struct known *known = &conflicts->known[(size_t)thread * conflicts->threads + earlier->thread];

	return known->start_ns && (known->place == earlier->place || precedes(earlier, known->start_ns));
}

static void learn(struct conflicts *conflicts, const struct subject *earlier, uint32_t thread)
{
	if (!conflicts->known)
		return;
	struct known *known = &conflicts->known[(size_t)thread * conflicts->threads + earlier->thread];

	if (earlier->start_ns >= known->start_ns)
		*known = (struct known){earlier->start_ns, earlier->place};
}

/* Instead of what its thread did before, if that is waited for already. */
static void add_wait(struct waits *waits, const struct subject *earlier)
{
	for (uint32_t i = 0; i < waits->count; i++) {
		struct subject *other = &waits->list[i];

		if (other->thread != earlier->thread)
			continue;
		if (other->place == earlier->place || precedes(earlier, other->start_ns))
			return;
		if (precedes(other, earlier->start_ns)) {
			*other = *earlier;
			return;
		}
	}
	if (waits->count == CONFLICTS_MAX)
		waits->too_many = true;
	else
		waits->list[waits->count++] = *earlier;
}

static int compare_latest_first(const void *left, const void *right)
{
	const struct subject *a = left, *b = right;

	return a->end_ns > b->end_ns ? -1 : a->end_ns < b->end_ns;
}

static void wait_for_line(struct conflicts *conflicts, const struct subject *subject, uint32_t line, uint64_t seen_ns,
			  bool own_process, struct waits *waits)
{
	const struct last_access *access;

	for (uint32_t at = conflicts->newest[line]; at; at = access->older) {
		access = &conflicts->accesses[at];
		const struct subject *earlier = &access->subject;

		if (precedes(earlier, seen_ns))
			return;
		if (earlier->thread == subject->thread || earlier->place < conflicts->recycled ||
		    (own_process && earlier->process != subject->process) ||
		    is_known(conflicts, earlier, subject->thread))
			continue;
		add_wait(waits, earlier);
	}
}

void conflicts_start(struct conflicts *conflicts, const struct subject *subject, struct waits *waits)
{
	struct accesses accesses;

	waits->count = 0;
	waits->too_many = false;
	access_of(conflicts->names.table, subject->record, subject->names, &accesses);
	for (uint32_t i = 0; i < accesses.count; i++) {
		uint32_t resource = accesses.list[i].resource;
		const struct access_rule *rule = accesses.list[i].rule;
		uint64_t seen_ns = seen_until(conflicts, line_of(resource, rule->kind), subject->thread);

		for (uint8_t kind = 0; kind < ACCESS_KINDS; kind++) {
			bool anybody = rule->waits & 1u << kind;

			if (anybody || rule->waits_own & 1u << kind)
				wait_for_line(conflicts, subject, line_of(resource, kind), seen_ns, !anybody, waits);
		}
	}
	/* Who waits for the latest first is not woken for each of the others. */
	qsort(waits->list, waits->count, sizeof(*waits->list), compare_latest_first);
	for (uint32_t i = 0; i < waits->count; i++)
		learn(conflicts, &waits->list[i], subject->thread);
}

/* Forgets what an access has waited for, where everybody who would wait for that will wait for this one. */
static void replace(struct conflicts *conflicts, const struct subject *subject, uint32_t line, uint64_t seen_ns,
		    bool own_process)
{
	uint32_t older;

	for (uint32_t at = conflicts->newest[line]; at; at = older) {
		const struct subject *earlier = &conflicts->accesses[at].subject;

		older = conflicts->accesses[at].older;
		if (precedes(earlier, seen_ns))
			return;
		if (precedes(earlier, subject->start_ns) && (!own_process || earlier->process == subject->process))
			forget(conflicts, at);
	}
}

bool conflicts_end(struct conflicts *conflicts, const struct subject *subject)
{
	struct accesses accesses;

	access_of(conflicts->names.table, subject->record, subject->names, &accesses);
	for (uint32_t i = 0; i < accesses.count; i++) {
		uint32_t resource = accesses.list[i].resource;
		const struct access_rule *rule = accesses.list[i].rule;
		uint32_t line = line_of(resource, rule->kind);
		uint64_t seen_ns = seen_until(conflicts, line, subject->thread);

		for (uint8_t kind = 0; kind < ACCESS_KINDS; kind++) {
			bool anybody = rule->replaces & 1u << kind;

			if (anybody || rule->replaces_own & 1u << kind)
				replace(conflicts, subject, line_of(resource, kind), seen_ns, !anybody);
		}
		if (!remember(conflicts, subject, line))
			return false;
	}
	return true;
}

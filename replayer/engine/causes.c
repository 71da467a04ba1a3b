// SPDX-License-Identifier: Apache-2.0
// Turns ids of operations into their places.
#include <errno.h>
#include <stdlib.h>

#include "replayer/engine/causes.h"

static struct cause *slot_of(const struct causes *causes, uint64_t id)
{
	uint64_t at = (id * 0x9e3779b97f4a7c15ull) >> 20;

	while (causes->slots[at & causes->mask].id && causes->slots[at & causes->mask].id != id)
		at++;
	return &causes->slots[at & causes->mask];
}

/* Four times the places: those that are not recycled fill no more than a quarter, so that sweeping makes room for as much again. */
int causes_init(struct causes *causes, uint64_t places)
{
	uint64_t room = 4;

	while (room < 4 * places)
		room *= 2;
	*causes = (struct causes){.slots = calloc(room, sizeof(*causes->slots)), .mask = room - 1};
	return causes->slots ? 0 : -ENOMEM;
}

void causes_free(struct causes *causes)
{
	free(causes->slots);
	*causes = (struct causes){0};
}

/* Leaves those whose places have not been given away. */
static bool sweep(struct causes *causes)
{
	struct causes swept = *causes;

	swept.used = 0;
	swept.slots = calloc(causes->mask + 1, sizeof(*swept.slots));
	if (!swept.slots)
		return false;
	for (uint64_t i = 0; i <= causes->mask; i++) {
		const struct cause *cause = &causes->slots[i];

		if (!cause->id || cause->place < causes->recycled)
			continue;
		*slot_of(&swept, cause->id) = *cause;
		swept.used++;
	}
	free(causes->slots);
	*causes = swept;
	return true;
}

bool causes_add(struct causes *causes, const struct cause *cause)
{
	if (!cause->id)
		return true;
	if (4 * causes->used >= 3 * causes->mask && !sweep(causes))
		return false;
	struct cause *slot = slot_of(causes, cause->id);

	causes->used += !slot->id;
	*slot = *cause;
	return true;
}

const struct cause *causes_find(const struct causes *causes, uint64_t id)
{
	const struct cause *cause = slot_of(causes, id);

	return cause->id && cause->place >= causes->recycled ? cause : NULL;
}

// SPDX-License-Identifier: Apache-2.0
// Turns the path of a file, kept as a hash, into the file that came there last while a trace is gone through.
#include <errno.h>
#include <stdlib.h>

#include "replayer/engine/path_owners.h"

enum { ROOM_MIN = 64 }; /* a power of two, as it stays */

/* Its slot, or the free one where it would go: there is one. */
static struct path_owner *find(const struct path_owners *owners, uint64_t path)
{
	uint64_t at = path & (owners->room - 1);

	while (owners->slots[at].path && owners->slots[at].path != path)
		at = (at + 1) & (owners->room - 1);
	return &owners->slots[at];
}

static int enlarge(struct path_owners *owners)
{
	struct path_owners larger = {.count = owners->count, .room = owners->room ? 2 * owners->room : ROOM_MIN};

	larger.slots = calloc(larger.room, sizeof(*larger.slots));
	if (!larger.slots)
		return -ENOMEM;
	for (uint64_t i = 0; i < owners->room; i++) {
		if (owners->slots[i].path)
			*find(&larger, owners->slots[i].path) = owners->slots[i];
	}
	free(owners->slots);
	*owners = larger;
	return 0;
}

uint32_t path_owner(const struct path_owners *owners, uint64_t path)
{
	return path && owners->room ? find(owners, path)->file : 0;
}

int path_owner_set(struct path_owners *owners, uint64_t path, uint32_t file)
{
	if (!path)
		return 0;
	if (2 * owners->count >= owners->room && enlarge(owners))
		return -ENOMEM;
	struct path_owner *owner = find(owners, path);
	owners->count += !owner->path;
	*owner = (struct path_owner){path, file};
	return 0;
}

void path_owners_free(struct path_owners *owners)
{
	free(owners->slots);
	owners->slots = NULL;
}

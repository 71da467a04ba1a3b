// SPDX-License-Identifier: Apache-2.0
// Turns what an image was made for into the name of an empty file in it, and back.
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "bpf/cleanup.h"
#include "replayer/engine/data_fill.h"
#include "replayer/engine/image_seal.h"
#include "replayer/engine/listing.h"

#define PREFIX IMAGE_MARKER "."
#define UNFINISHED "unfinished"

enum { SEAL_NAME_BYTES = sizeof(PREFIX) + DATA_NAME_BYTES + 20 };

static bool is_seal_name(const char *name)
{
	return !strncmp(name, PREFIX, strlen(PREFIX));
}

bool seal_is_name(const char *name)
{
	return !strcmp(name, IMAGE_MARKER) || is_seal_name(name);
}

static void seal_name(char name[static SEAL_NAME_BYTES], const struct seal *seal)
{
	char data[DATA_NAME_BYTES];

	data_name(data, seal->data_percent);
	if (seal->finished)
		snprintf(name, SEAL_NAME_BYTES, PREFIX "%s.%016" PRIx64, data, seal->files_hash);
	else
		snprintf(name, SEAL_NAME_BYTES, PREFIX "%s." UNFINISHED, data);
}

static void parse(const char *name, struct seal *seal)
{
	char data[DATA_NAME_BYTES];
	const char *state = strrchr(name, '.') + 1;

	snprintf(data, sizeof(data), "%.*s", (int)(state - 1 - name), name);
	int percent = data_parse(data);
	if (percent < 0)
		return;
	*seal = (struct seal){.found = true, .data_percent = (unsigned int)percent};
	seal->finished = strcmp(state, UNFINISHED) != 0 && sscanf(state, "%" SCNx64, &seal->files_hash) == 1;
}

/* Looks at all seals: reads the last one, or removes all but `keep`. */
static int walk(int directory, struct seal *seal, const char *keep)
{
	_cleanup_closedir_ DIR *listing = listing_open(directory);

	for (const struct dirent *entry; listing && (entry = listing_next(listing));) {
		if (!is_seal_name(entry->d_name))
			continue;
		if (seal && strchr(entry->d_name + strlen(PREFIX), '.'))
			parse(entry->d_name + strlen(PREFIX), seal);
		if (keep && strcmp(entry->d_name, keep) != 0 && unlinkat(directory, entry->d_name, 0) < 0 &&
		    errno != ENOENT)
			return -errno;
	}
	return -errno;
}

int seal_read(int directory, struct seal *seal)
{
	*seal = (struct seal){0};
	return walk(directory, seal, NULL);
}

int seal_write(int directory, const struct seal *seal)
{
	char name[SEAL_NAME_BYTES];

	seal_name(name, seal);
	int descriptor = openat(directory, name, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (descriptor < 0)
		return -errno;
	close(descriptor);
	return walk(directory, NULL, name);
}

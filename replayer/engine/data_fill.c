// SPDX-License-Identifier: Apache-2.0
// Turns a number into data for files and writes.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "replayer/engine/data_fill.h"

enum {
	BLOCK_BYTES = 4096, /* zram compresses this much at once, file systems more */
	FILLER = 0x66, /* not zero, which may become a hole */
};

static const char compressible[] = "compressible";

static void fill_random(uint8_t *at, uint64_t bytes, uint64_t *state)
{
	for (uint64_t done = 0; done < bytes; done += sizeof(*state)) {
		/* splitmix64 */
		uint64_t z = (*state += 0x9e3779b97f4a7c15ull);

		z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
		z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
		z ^= z >> 31;
		memcpy(at + done, &z, bytes - done < sizeof(z) ? bytes - done : sizeof(z));
	}
}

void fill_data(void *buffer, uint64_t bytes, uint64_t seed, unsigned int percent)
{
	uint64_t state = seed * 0x9e3779b97f4a7c15ull + 1;

	for (uint64_t at = 0; at < bytes; at += BLOCK_BYTES) {
		uint64_t here = bytes - at < BLOCK_BYTES ? bytes - at : BLOCK_BYTES;
		uint64_t random = here * percent / 100;

		fill_random((uint8_t *)buffer + at, random, &state);
		memset((uint8_t *)buffer + at + random, FILLER, here - random);
	}
}

int data_parse(const char *text)
{
	char *end;

	if (!strcmp(text, "random"))
		return DATA_RANDOM_PERCENT;
	if (strncmp(text, compressible, strlen(compressible)) != 0)
		return -EINVAL;
	text += strlen(compressible);
	if (!*text)
		return DATA_COMPRESSIBLE_PERCENT;
	if (*text != ':' || text[1] < '0' || text[1] > '9')
		return -EINVAL;
	unsigned long percent = strtoul(text + 1, &end, 10);
	return *end || percent < 1 || percent > DATA_RANDOM_PERCENT ? -EINVAL : (int)percent;
}

void data_name(char name[static DATA_NAME_BYTES], unsigned int percent)
{
	if (percent == DATA_RANDOM_PERCENT)
		snprintf(name, DATA_NAME_BYTES, "random");
	else
		snprintf(name, DATA_NAME_BYTES, "%s:%u", compressible, percent);
}

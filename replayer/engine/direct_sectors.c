// SPDX-License-Identifier: Apache-2.0
// Turns a file into the unit in which its storage does direct I/O.
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "bpf/cleanup.h"
#include "replayer/engine/direct_sectors.h"

#ifndef STATX_DIOALIGN
#define STATX_DIOALIGN 0x2000U
#endif

/* A partition has them in its disk. */
static uint32_t sectors_of_device(unsigned int major, unsigned int minor)
{
	static const char *const places[] = {"", "/.."};
	unsigned int bytes;

	for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
		char path[96];

		snprintf(path, sizeof(path), "/sys/dev/block/%u:%u%s/queue/logical_block_size", major, minor,
			 places[i]);
		_cleanup_fclose_ FILE *stream = fopen(path, "re");
		if (stream && fscanf(stream, "%u", &bytes) == 1 && bytes >= SECTOR_BYTES_MIN)
			return bytes;
	}
	return SECTOR_BYTES_MIN;
}

uint32_t direct_sector_bytes(int directory, const char *name)
{
	struct statx status;

	if (statx(directory, name, AT_SYMLINK_NOFOLLOW, STATX_DIOALIGN, &status) < 0)
		return SECTOR_BYTES_MIN;
	if (status.stx_mask & STATX_DIOALIGN && status.stx_dio_offset_align >= SECTOR_BYTES_MIN)
		return status.stx_dio_offset_align;
	return sectors_of_device(status.stx_dev_major, status.stx_dev_minor);
}

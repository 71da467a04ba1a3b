// SPDX-License-Identifier: Apache-2.0
// Turns a block device into what a user has to repeat before it is overwritten.
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "replayer/engine/device_identity.h"

/* Where drivers put the number, and how many bytes stand before it. */
static const struct {
	const char *name;
	size_t head_bytes;
} places[] = {
	{"serial", 0}, /* virtio */
	{"device/serial", 0}, /* NVMe, MMC */
	{"device/vpd_pg80", 4}, /* SCSI and ATA: page 0x80 of the vital product data */
};

static bool read_number(const char *directory, const char *name, size_t head_bytes, char number[static IDENTITY_BYTES])
{
	char path[PATH_MAX], raw[IDENTITY_BYTES];

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	int file = open(path, O_RDONLY | O_CLOEXEC);
	if (file < 0)
		return false;
	ssize_t bytes = read(file, raw, sizeof(raw) - 1);
	close(file);
	if (bytes <= (ssize_t)head_bytes)
		return false;
	raw[bytes] = '\0';
	const char *text = raw + head_bytes;
	text += strspn(text, " \n");
	snprintf(number, IDENTITY_BYTES, "%s", text);
	for (size_t end = strlen(number); end && strchr(" \n", number[end - 1]);)
		number[--end] = '\0';
	return number[0] != '\0';
}

const char *device_identity(const char *system_directory, uint64_t size_bytes, char identity[static IDENTITY_BYTES])
{
	for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
		if (read_number(system_directory, places[i].name, places[i].head_bytes, identity))
			return "its serial number (lsblk --nodeps --output NAME,SERIAL)";
	}
	snprintf(identity, IDENTITY_BYTES, "%" PRIu64, size_bytes);
	return "its size in bytes (blockdev --getsize64), as it has no serial number";
}

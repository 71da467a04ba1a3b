/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns the name of a block device into a descriptor that a replay may use, or a refusal. The device is opened
 * exclusively first and looked at afterwards, through that descriptor, which stays open to the end: nothing can mount it
 * or otherwise take it between the check and the last operation.
 */
#ifndef FLEXTRACE_TARGET_GUARD_H
#define FLEXTRACE_TARGET_GUARD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct target {
	const char *path;
	int descriptor; /* exclusive; the replay's own ones are opened through it */
	dev_t device;
	uint64_t size_bytes;
	uint32_t block_bytes; /* logical */
	bool writable;
};

/*
 * Refuses what is no block device, and one that is mounted, swap, or that others lie on, itself or a partition of it. For
 * writing it also refuses one with partitions or with the signature of a file system, RAID, volume manager or swap, and
 * one of which the user has not repeated the serial number, or, where it has none, the size in bytes, as `confirmation`.
 */
int target_open(struct target *target, const char *path, bool write, const char *confirmation);

/* Another descriptor of the same device; `flags` for the replay's. Read-only unless it was opened for writing. */
int target_reopen(const struct target *target, int flags);

void target_close(struct target *target);

#endif

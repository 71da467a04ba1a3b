/* SPDX-License-Identifier: Apache-2.0 */
/* Turns a block device into what a user has to repeat before it is overwritten. */
#ifndef FLEXTRACE_DEVICE_IDENTITY_H
#define FLEXTRACE_DEVICE_IDENTITY_H

#include <stdint.h>

enum { IDENTITY_BYTES = 256 };

/*
 * The serial number that sysfs has in the device's directory, without blanks around it, or, where there is none (loop,
 * zram, partitions), the size in bytes. Returns in words which of them it is and how it is looked up.
 */
const char *device_identity(const char *system_directory, uint64_t size_bytes, char identity[static IDENTITY_BYTES]);

#endif

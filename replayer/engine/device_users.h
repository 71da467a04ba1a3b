/* SPDX-License-Identifier: Apache-2.0 */
/* Turns a block device into who uses it: a mount, swap, device mapper, RAID, a loop device, also by its partitions. */
#ifndef FLEXTRACE_DEVICE_USERS_H
#define FLEXTRACE_DEVICE_USERS_H

#include <stdbool.h>
#include <sys/types.h>

enum { DEVICE_USER_BYTES = 512 };

/*
 * Describes one user, such as "mounted on /home"; false when none is found. The kernel keeps all but loop devices from
 * sharing a device that was opened exclusively; this is what says why it refused.
 */
bool device_user(dev_t device, char user[static DEVICE_USER_BYTES]);

/* How many partitions the kernel knows on it. */
unsigned int device_partitions(dev_t device);

#endif

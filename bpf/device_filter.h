/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FLEXTRACE_DEVICE_FILTER_H
#define FLEXTRACE_DEVICE_FILTER_H

#include "ring_event.h"
#include "topology.h"

/*
 * Devices of the file systems whose data lies on a block device: itself, its partitions, what is stacked on any of them, and
 * file systems with a device number of their own (btrfs) that are mounted from one. The number of them; -E2BIG if there are
 * more than fit. Both numbers of a btrfs: that of its super block and that which stat gives.
 */
int device_filter_fill(uint32_t devices[FILTER_DEVICES_MAX], uint32_t device);

#endif /* FLEXTRACE_DEVICE_FILTER_H */

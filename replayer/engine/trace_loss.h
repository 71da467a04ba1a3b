/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns records that cannot be read any more, since the file of a mapped trace was cut off or its disk fails, into zeros
 * and a stop: else the replay would die of SIGBUS, without its result, and leave its files.
 */
#ifndef FLEXTRACE_TRACE_LOSS_H
#define FLEXTRACE_TRACE_LOSS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* From now on. Who finds zeros in a record finds *stop set after that. There is one trace. */
void trace_loss_watch(const void *map, size_t bytes, atomic_bool *stop);

bool trace_is_lost(void);

/* If the page of this byte is lost, the stop is set from here on: for who looks at that before he does what is there. */
static inline void trace_loss_meet(const uint8_t *byte)
{
	(void)__atomic_load_n(byte, __ATOMIC_ACQUIRE);
}

#endif

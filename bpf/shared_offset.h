/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FLEXTRACE_SHARED_OFFSET_H
#define FLEXTRACE_SHARED_OFFSET_H

#include <stddef.h>
#include <stdint.h>

/*
 * Gives every record named by inferred[] (indices, ascending) its most plausible offset, in place in the trace file. That
 * can take long where calls overlap very many others: such an offset is given up, as are all that are left when the
 * descriptor `stop` (-1 = none) has something to read, and stays the lowest possible one; *given_up counts them, too.
 * Returns 0 or a negative errno.
 */
int shared_offset_resolve(int descriptor, uint64_t record_count, const uint64_t *inferred, size_t inferred_count,
			  int stop, size_t *given_up);

#endif /* FLEXTRACE_SHARED_OFFSET_H */

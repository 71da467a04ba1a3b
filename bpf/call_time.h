/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FLEXTRACE_CALL_TIME_H
#define FLEXTRACE_CALL_TIME_H

#include <stdint.h>

/* How long the shortest system calls of this thread take that the programs have to look at, ns. */
uint64_t call_time_ns(void);

#endif /* FLEXTRACE_CALL_TIME_H */

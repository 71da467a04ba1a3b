/* SPDX-License-Identifier: Apache-2.0 */
/* Turns a word that threads of this process share into sleep until somebody has changed it. */
#ifndef FLEXTRACE_FUTEX_H
#define FLEXTRACE_FUTEX_H

#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { FUTEX_ALL = INT_MAX };

/* Sleeps while the word has this value, for limit_ns at most (UINT64_MAX = any time), or less: who waits looks again. */
static inline void futex_sleep(_Atomic uint32_t *word, uint32_t value, uint64_t limit_ns)
{
	struct timespec limit = {(time_t)(limit_ns / 1000000000u), (long)(limit_ns % 1000000000u)};

	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, limit_ns == UINT64_MAX ? NULL : &limit, NULL, 0);
}

/* So many of those who sleep, after the word was changed. */
static inline void futex_wake(_Atomic uint32_t *word, int sleepers)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, sleepers, NULL, NULL, 0);
}

#endif

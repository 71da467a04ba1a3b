/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FLEXTRACE_QUANTITY_H
#define FLEXTRACE_QUANTITY_H

#include <stdbool.h>
#include <stdint.h>

/* "4096", "64K", "1.5G", "2GiB": bytes, or K, M, G or T of them (powers of 1024; KB, MB ... powers of 1000), rounded. */
bool quantity_bytes(const char *text, uint64_t *bytes);
/* "30", "30s", "500ms", "5m", "1h": seconds without a unit, fractions allowed. */
bool quantity_duration_ns(const char *text, uint64_t *duration_ns);

#endif /* FLEXTRACE_QUANTITY_H */

/* SPDX-License-Identifier: Apache-2.0 */
/* Turns durations in ns into counts by log-linear class, and those into means and percentiles within 0.4 %. */
#ifndef FLEXTRACE_HISTOGRAM_H
#define FLEXTRACE_HISTOGRAM_H

#include <stdint.h>

enum {
	HISTOGRAM_BITS = 7, /* 128 classes per power of two: a class is at most 1/128 wide, its middle off by 1/256 */
	HISTOGRAM_POWERS = 40, /* up to 2^47 ns, 39 hours; longer ones fall into the last class */
	HISTOGRAM_CLASSES = (HISTOGRAM_POWERS + 1) << HISTOGRAM_BITS,
	HISTOGRAM_BUCKETS = HISTOGRAM_BITS + HISTOGRAM_POWERS + 1, /* of which bucket b holds what is below 2^b ns */
};

struct histogram {
	uint64_t count;
	uint64_t sum_ns; /* wraps after 584 years of waiting */
	uint64_t max_ns;
	uint64_t classes[HISTOGRAM_CLASSES];
};

static inline uint32_t histogram_class(uint64_t value)
{
	if (value < (1u << HISTOGRAM_BITS))
		return (uint32_t)value;
	uint32_t power = 63 - (uint32_t)__builtin_clzll(value) - HISTOGRAM_BITS;
	uint32_t class = ((power + 1) << HISTOGRAM_BITS) + (uint32_t)((value >> power) & ((1u << HISTOGRAM_BITS) - 1));

	return class < HISTOGRAM_CLASSES ? class : HISTOGRAM_CLASSES - 1;
}

static inline void histogram_add(struct histogram *histogram, uint64_t value_ns)
{
	histogram->count++;
	histogram->sum_ns += value_ns;
	if (value_ns > histogram->max_ns)
		histogram->max_ns = value_ns;
	histogram->classes[histogram_class(value_ns)]++;
}

void histogram_merge(struct histogram *into, const struct histogram *from);

/* The middle of the class that holds the value of rank ceil(fraction x count); 0 when nothing was counted. */
uint64_t histogram_quantile(const struct histogram *histogram, double fraction);

/* Counts by power of two: bucket 0 of 0 ns, bucket b of 2^(b-1) to 2^b - 1 ns, the last one also of all that is longer. */
void histogram_buckets(const struct histogram *histogram, uint64_t counts[static HISTOGRAM_BUCKETS]);

#endif

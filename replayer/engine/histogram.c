// SPDX-License-Identifier: Apache-2.0
// Turns counts by log-linear class into percentiles, and into fewer classes.
#include <math.h>
#include <string.h>

#include "replayer/engine/histogram.h"

void histogram_merge(struct histogram *into, const struct histogram *from)
{
	if (!from->count)
		return;
	into->count += from->count;
	into->sum_ns += from->sum_ns;
	if (from->max_ns > into->max_ns)
		into->max_ns = from->max_ns;
	for (uint32_t class = 0; class < HISTOGRAM_CLASSES; class ++)
		into->classes[class] += from->classes[class];
}

static uint64_t class_middle(uint32_t class)
{
	if (class < (1u << HISTOGRAM_BITS))
		return class;
	uint32_t power = (class >> HISTOGRAM_BITS) - 1;
	uint64_t low = ((uint64_t)(class & ((1u << HISTOGRAM_BITS) - 1)) | (1u << HISTOGRAM_BITS)) << power;

	return low + (1ull << power) / 2;
}

void histogram_buckets(const struct histogram *histogram, uint64_t counts[static HISTOGRAM_BUCKETS])
{
	memset(counts, 0, HISTOGRAM_BUCKETS * sizeof(*counts));
	for (uint32_t class = 0; class < HISTOGRAM_CLASSES; class ++) {
		uint64_t middle = class_middle(class);

		counts[middle ? 64 - __builtin_clzll(middle) : 0] += histogram->classes[class];
	}
}

uint64_t histogram_quantile(const struct histogram *histogram, double fraction)
{
	uint64_t rank = (uint64_t)ceil(fraction * (double)histogram->count);
	uint64_t seen = 0;

	if (!histogram->count)
		return 0;
	if (rank < 1)
		rank = 1;
	for (uint32_t class = 0; class < HISTOGRAM_CLASSES; class ++) {
		seen += histogram->classes[class];
		if (seen >= rank) {
			uint64_t middle = class_middle(class);

			return middle < histogram->max_ns ? middle : histogram->max_ns;
		}
	}
	return histogram->max_ns;
}

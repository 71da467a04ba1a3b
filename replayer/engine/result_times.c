// SPDX-License-Identifier: Apache-2.0
// Turns measured times into members of the document flextrace.replay/1.
#include <stddef.h>

#include "replayer/engine/json.h"
#include "replayer/engine/result_times.h"

static void print_times_within(const struct histogram *histogram)
{
	json_count("count", histogram->count);
	json_number("mean_ns", histogram->count ? (double)histogram->sum_ns / (double)histogram->count : 0);
	json_count("p50_ns", histogram_quantile(histogram, 0.5));
	json_count("p90_ns", histogram_quantile(histogram, 0.9));
	json_count("p99_ns", histogram_quantile(histogram, 0.99));
	json_count("p999_ns", histogram_quantile(histogram, 0.999));
	json_count("max_ns", histogram->max_ns);
}

void print_times(const char *name, const struct histogram *histogram)
{
	json_open(name, '{');
	print_times_within(histogram);
	json_close('}');
}

void print_distribution(const char *name, const struct histogram *histogram)
{
	uint64_t counts[HISTOGRAM_BUCKETS];

	histogram_buckets(histogram, counts);
	json_open(name, '{');
	print_times_within(histogram);
	json_open("buckets", '{');
	json_open("below_ns", '[');
	for (int bucket = 0; bucket < HISTOGRAM_BUCKETS; bucket++) {
		if (counts[bucket])
			json_count(NULL, 1ull << bucket);
	}
	json_close(']');
	json_open("counts", '[');
	for (int bucket = 0; bucket < HISTOGRAM_BUCKETS; bucket++) {
		if (counts[bucket])
			json_count(NULL, counts[bucket]);
	}
	json_close(']');
	json_close('}');
	json_close('}');
}

// SPDX-License-Identifier: Apache-2.0
// Turns the HOLE records of a trace into sorted ranges by file.
#include <errno.h>

#include "replayer/engine/message.h"
#include "replayer/engine/recorded_holes.h"

int recorded_holes_read(struct file_ranges *holes, const struct trace *trace)
{
	uint64_t left = trace_count_of(trace, RECORD_HOLE);

	*holes = (struct file_ranges){0};
	for (uint64_t i = 0; i < trace->count && left; i++) {
		const struct hole_record *record = &trace->records[i].hole;

		if (trace_pass(trace, i))
			return -EINTR;
		if (record->kind != RECORD_HOLE)
			continue;
		left--;
		struct file_range range = {
			.file = record->file,
			.offset = record->offset,
			.end = add_saturating(record->offset, record->bytes),
		};
		if (file_ranges_add(holes, &range)) {
			complain("no memory for the holes of %s", trace->path);
			return -ENOMEM;
		}
	}
	file_ranges_sort(holes);
	return 0;
}

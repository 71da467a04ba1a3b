// SPDX-License-Identifier: Apache-2.0
// Turns the RESIDENT records of a trace into sorted ranges by file.
#include <errno.h>

#include "replayer/engine/message.h"
#include "replayer/engine/resident_ranges.h"

int resident_ranges_read(struct file_ranges *ranges, const struct trace *trace, const struct file_table *table,
			 bool streams)
{
	uint64_t left = trace_count_of(trace, RECORD_RESIDENT);

	*ranges = (struct file_ranges){0};
	for (uint64_t i = 0; i < trace->count && left; i++) {
		const struct resident_record *record = &trace->records[i].resident;

		if (streams && i % TRACE_BLOCK_RECORDS == 0 && i)
			trace_drop(trace, i - TRACE_BLOCK_RECORDS, TRACE_BLOCK_RECORDS);
		if (i % TRACE_BLOCK_RECORDS == 0 && atomic_load(trace->stop))
			break; /* the run then ends with its result */
		if (record->kind != RECORD_RESIDENT)
			continue;
		left--;
		uint32_t index = files_index(table, record->file);
		const struct file *file = &table->files[index];
		uint64_t end = add_saturating(record->offset, record->bytes);
		struct file_range range = {
			.file = index,
			.offset = record->offset,
			.end = end < file->layout_bytes ? end : file->layout_bytes,
			.large_folios = record->large_folios,
			.large_folio_order = record->large_folio_order,
		};
		if (!index || !file->laid_out || range.offset >= range.end)
			continue;
		if (file_ranges_add(ranges, &range)) {
			complain("no memory for the cached ranges of %s; --cache warm or cold needs none", trace->path);
			return -ENOMEM;
		}
	}
	file_ranges_sort(ranges);
	return 0;
}

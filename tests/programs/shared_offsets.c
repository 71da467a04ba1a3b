// SPDX-License-Identifier: Apache-2.0
/*
 * Works out the offsets of a trace that carry IO_OFFSET_INFERRED as the recorder does at its end, in place, until STOP, a
 * descriptor, has something to read (-1 = never). Tells how many it gave up.
 *
 *	shared_offsets TRACE STOP
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bpf/shared_offset.h"
#include "bpf/trace_format.h"

int main(int argc, char **argv)
{
	int trace = argc == 3 ? open(argv[1], O_RDWR) : -1;
	struct trace_header header;
	struct io_record record;
	size_t count = 0, given_up = 0;

	if (pread(trace, &header, sizeof(header), 0) != sizeof(header))
		return 1;
	uint64_t *inferred = calloc(header.record_count, sizeof(*inferred));
	for (uint64_t i = 0; i < header.record_count && inferred; i++) {
		off_t place = TRACE_HEADER_BYTES + (off_t)(i * TRACE_RECORD_BYTES);
		if (pread(trace, &record, sizeof(record), place) != sizeof(record))
			return 1;
		if (record.kind == RECORD_IO && record.flags & IO_OFFSET_INFERRED)
			inferred[count++] = i;
	}
	int error = shared_offset_resolve(trace, header.record_count, inferred, count, atoi(argv[2]), &given_up);
	printf("%zu\n", given_up);
	free(inferred);
	return error ? 1 : 0;
}

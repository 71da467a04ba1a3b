// SPDX-License-Identifier: Apache-2.0
/*
 * A trace with more offsets to work out than there is memory to note, none of which it has the time for. Tells how many
 * were given up.
 *
 *	unnoted_offsets FILE COUNT <SOMETHING
 */
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "bpf/writer.h"

int main(int argc, char **argv)
{
	static struct writer writer;
	struct io_record record = {
		.kind = RECORD_IO,
		.op = IO_WRITE,
		.flags = IO_OFFSET_INFERRED,
		.asked_bytes = 1,
		.result = 1,
		.missed_bytes = 1,
	};
	struct rlimit memory, full;
	if (argc != 3 || getrlimit(RLIMIT_AS, &memory) || writer_init(&writer, argv[1], false, "{}"))
		errx(2, "usage: unnoted_offsets FILE COUNT <SOMETHING");
	full = memory;
	full.rlim_cur = 0;
	writer_begin(&writer);
	for (long i = 0, count = atol(argv[2]); i < count; i++) {
		if (i == count / 2 && setrlimit(RLIMIT_AS, &full))
			err(1, "setrlimit");
		writer_append(&writer, &record);
	}
	writer.stop = STDIN_FILENO;
	if (setrlimit(RLIMIT_AS, &memory) || writer_deinit(&writer, "{}"))
		errx(1, "cannot write %s", argv[1]);
	printf("%zu\n", writer.given_up);
	return 0;
}

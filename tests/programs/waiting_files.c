// SPDX-License-Identifier: Apache-2.0
/*
 * More files at once than the recorder lets wait until it looks which parts of them were cached; tells how many it gave up.
 *
 *	waiting_files COUNT
 */
#include <err.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "bpf/residency.h"

int main(int argc, char **argv)
{
	static struct residency residency;
	const struct file_record record = {
		.kind = RECORD_FILE,
		.type = FILE_TYPE_REGULAR,
		.filesystem_magic = EXT4_SUPER_MAGIC,
		.size_bytes = 3 << 20,
		.resident_bytes = 1 << 20,
	};
	if (argc != 2 || residency_init(&residency))
		errx(2, "usage: waiting_files COUNT");
	for (long i = 0; i < atol(argv[1]); i++)
		residency_note(&residency, &record, "/nowhere", getpid());
	printf("%u %u\n", residency.count, residency.given_up);
	residency_deinit(&residency);
	return 0;
}

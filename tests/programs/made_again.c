// SPDX-License-Identifier: Apache-2.0
/*
 * Makes, writes, closes and removes a file again and again, and nothing else: four calls, of which recording one takes
 * several times as long as another.
 *
 *	made_again FILE
 */
#include <err.h>
#include <fcntl.h>
#include <unistd.h>

enum { ROUNDS = 1009 };

int main(int argc, char **argv)
{
	if (argc != 2)
		errx(2, "usage: made_again FILE");
	for (int i = 0; i < ROUNDS; i++) {
		int descriptor = open(argv[1], O_WRONLY | O_CREAT | O_EXCL, 0600);

		if (descriptor < 0 || pwrite(descriptor, "x", 1, 0) != 1 || close(descriptor) < 0 ||
		    unlink(argv[1]) < 0)
			err(1, "%s", argv[1]);
	}
	return 0;
}

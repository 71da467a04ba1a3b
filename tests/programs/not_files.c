// SPDX-License-Identifier: Apache-2.0
/*
 * Reads and writes that move no data of a file: pipes, sockets, a terminal, an event counter, devices without data, and
 * files of the kernel's own file systems. Says how many operations of each kind a round has: "not_a_file N",
 * "pseudo_file N".
 *
 *	not_files DIRECTORY ROUNDS
 */
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <termios.h>

#include "told.h"

static char buffer[128];
static const uint64_t sent[16] = {1}; /* an event counter takes no 0: reading it would wait for ever */
static int operations, pseudo_operations; /* of the round that runs */

static void move(int to, int from, int bytes)
{
	expect("write", write(to, sent, bytes), bytes);
	expect("read", read(from, buffer, sizeof(buffer)), bytes);
	operations += 2;
}

int main(int argc, char **argv)
{
	if (argc != 3)
		errx(2, "usage: not_files DIRECTORY ROUNDS");
	told_init(argv[1]);
	int pipe_ends[2], sockets[2];
	if (pipe(pipe_ends) || socketpair(AF_UNIX, SOCK_STREAM, 0, sockets))
		err(1, "pipe and socketpair");
	int counter = eventfd(0, 0);
	int zero = open("/dev/zero", O_RDWR), statistics = open("/proc/self/stat", O_RDONLY);
	int setting = open("/sys/kernel/mm/transparent_hugepage/enabled", O_RDONLY);
	int terminal = posix_openpt(O_RDWR | O_NOCTTY);
	if (terminal < 0 || grantpt(terminal) || unlockpt(terminal))
		err(1, "pty");
	int line = open(ptsname(terminal), O_RDWR | O_NOCTTY);
	struct termios raw;
	tcgetattr(line, &raw);
	cfmakeraw(&raw);
	tcsetattr(line, TCSANOW, &raw);

	int file = open_file("file", O_RDWR | O_CREAT | O_EXCL);
	for (int round = 0; round < atoi(argv[2]); round++) {
		operations = pseudo_operations = 0;
		for (int i = 0; i < 7; i++) {
			move(pipe_ends[1], pipe_ends[0], 11);
			move(sockets[0], sockets[1], 13);
			move(terminal, line, 17);
			expect("pread of /dev/zero", pread(zero, buffer, 19, 0), 19);
			operations++;
		}
		for (int i = 0; i < 5; i++) {
			move(counter, counter, sizeof(uint64_t));
			if (pread(statistics, buffer, 23, 0) != 23 || pread(setting, buffer, 3, 0) != 3)
				err(1, "/proc or /sys");
			pseudo_operations += 2;
		}
		did("write", "file", round * 29, 29, write(file, buffer, 29), SOURCE_SYSCALL, 0);
	}
	close_file("file", file);
	printf("not_a_file %d\npseudo_file %d\n", operations, pseudo_operations);
	return 0;
}

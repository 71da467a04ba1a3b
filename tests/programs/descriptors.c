// SPDX-License-Identifier: Apache-2.0
/*
 * Files that a program gets at in other ways than by opening them by name: inherited, passed over a socket, opened before
 * anybody watched, duplicated, opened again through /proc, without a name, with several names, by a handle. Tells what it
 * did as told.h says.
 *
 *	descriptors DIRECTORY              everything but the next
 *	descriptors DIRECTORY early        opens files in two processes, says so, waits for a line, then reads them
 *	descriptors DIRECTORY child FILE   (itself) reads from a descriptor that it inherited
 */
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "told.h"

enum {
	FILE_BYTES = 101 * 103,
	PIECE_BYTES = 103,
	OPERATIONS = 7,
};

static char buffer[FILE_BYTES];

static void read_on(const char *name, int descriptor, int64_t position, int count)
{
	for (int i = 0; i < count; i++)
		did("read", name, position + i * PIECE_BYTES, PIECE_BYTES, read(descriptor, buffer, PIECE_BYTES),
		    SOURCE_SYSCALL, 0);
}

static void write_on(const char *name, int descriptor, int64_t position, int count)
{
	for (int i = 0; i < count; i++)
		did("write", name, position + i * PIECE_BYTES, PIECE_BYTES, write(descriptor, buffer, PIECE_BYTES),
		    SOURCE_SYSCALL, 0);
}

static void wait_for_child(void)
{
	int status;
	if (wait(&status) < 0 || status)
		errx(1, "a child failed");
}

static void do_inherited(const char *program)
{
	make_file("inherited", FILE_BYTES);
	int file = open_file("inherited", O_RDONLY);
	read_on("inherited", file, 0, OPERATIONS);
	fflush(stdout);
	if (fork() == 0) {
		char number[16];
		snprintf(number, sizeof(number), "%d", file);
		execl(program, program, told_directory, "child", number, NULL);
		_exit(1);
	}
	wait_for_child();
	/* The child has moved the position of both. */
	read_on("inherited", file, (2 * OPERATIONS) * PIECE_BYTES, OPERATIONS);
	close_file("inherited", file);
}

static void do_passed(void)
{
	int sockets[2];
	char control[CMSG_SPACE(sizeof(int))] = {0};
	struct iovec byte = {buffer, 1};
	struct msghdr message = {
		.msg_iov = &byte,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control),
	};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	if (socketpair(AF_UNIX, SOCK_DGRAM, 0, sockets))
		err(1, "socketpair");
	make_file("passed", FILE_BYTES);
	fflush(stdout);
	if (fork() == 0) { /* before the file is open */
		if (recvmsg(sockets[1], &message, 0) != 1)
			err(1, "recvmsg");
		int file;
		memcpy(&file, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(file));
		read_on("passed", file, OPERATIONS * PIECE_BYTES, OPERATIONS);
		close_file("passed", file);
		exit(0);
	}
	int file = open_file("passed", O_RDONLY);
	read_on("passed", file, 0, OPERATIONS);
	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(file));
	memcpy(CMSG_DATA(header), &file, sizeof(file));
	if (sendmsg(sockets[0], &message, 0) != 1)
		err(1, "sendmsg");
	wait_for_child();
	close_file("passed", file);
	close(sockets[0]);
	close(sockets[1]);
}

static void do_duplicated(void)
{
	char path[64];
	make_file("duplicated", FILE_BYTES);
	int file = open_file("duplicated", O_RDONLY);
	int twin = dup(file), high = dup2(file, 211);
	int64_t position = 0;
	for (int i = 0; i < 5; i++)
		for (int which = 0; which < 3; which++, position += PIECE_BYTES)
			read_on("duplicated", which == 0 ? file : which == 1 ? twin : high, position, 1);
	/* Another open of the same file: its position is its own. */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
	int again = open(path, O_RDONLY);
	if (again < 0)
		err(1, "open %s", path);
	did_file("open", "duplicated", again, 0, 0, 0);
	read_on("duplicated", again, 0, 3);
	close_file("duplicated", again);
	close_file("duplicated", file);
	close_file("duplicated", high);
	read_on("duplicated", twin, position, 3);
	close_file("duplicated", twin);
}

static void do_without_names(void)
{
	/* A name only, no file: nothing can be read through it, and a replay does not need it. */
	char path[PATH_ROOM], other[PATH_ROOM], name[64];
	int reference = open(path_of("duplicated", path), O_PATH);
	for (int i = 0; i < 5; i++)
		expect("read of O_PATH", read(reference, buffer, 11), -1);
	close(reference);

	/* Memory with a descriptor: nothing that could be laid out. */
	int memory = memfd_create("memory", 0);
	for (int i = 0; i < 5; i++)
		expect("write to memfd", pwrite(memory, buffer, 13, i * 13), 13);
	expect("read of memfd", pread(memory, buffer, 13, 0), 13);
	close(memory);

	int file = open_file("deleted", O_RDWR | O_CREAT | O_EXCL);
	write_on("deleted", file, 0, OPERATIONS);
	did_file("unlink", "deleted", 0, 0, unlink(path_of("deleted", path)), 0);
	write_on("deleted", file, OPERATIONS * PIECE_BYTES, 3);
	expect("lseek", lseek(file, 0, SEEK_SET), 0);
	read_on("deleted", file, 0, 5);
	close_file("deleted", file);
	/* The same name again, perhaps the same inode number: another file. */
	file = open_file("deleted", O_RDWR | O_CREAT | O_EXCL);
	write_on("deleted", file, 0, 2);
	close_file("deleted", file);

	file = open(told_directory, O_TMPFILE | O_RDWR, 0600);
	if (file < 0)
		err(1, "O_TMPFILE");
	struct statx status; /* asks for no times, which the first write would have among its flags */
	expect("statx", statx(file, "", AT_EMPTY_PATH, STATX_INO, &status), 0);
	snprintf(name, sizeof(name), "#%llu", (unsigned long long)status.stx_ino);
	did_file("open", name, file, 0600, 0, IO_CREATED);
	write_on(name, file, 0, OPERATIONS);
	expect("lseek", lseek(file, PIECE_BYTES, SEEK_SET), PIECE_BYTES);
	read_on(name, file, PIECE_BYTES, 5);
	close_file(name, file);

	/* Two names, one file: the trace knows it by the first. */
	make_file("linked", FILE_BYTES);
	did_file("link", "linked>second-name", 0, 0, link(path_of("linked", path), path_of("second-name", other)), 0);
	file = open(other, O_RDWR);
	did_file("open", "linked", file, 0, 0, 0);
	read_on("linked", file, 0, OPERATIONS);
	close_file("linked", file);
}

/* As file servers do it, without a name; not every file system can. */
static void do_by_handle(void)
{
	union {
		struct file_handle handle;
		char room[sizeof(struct file_handle) + MAX_HANDLE_SZ];
	} linked = {.handle.handle_bytes = MAX_HANDLE_SZ};
	int mount, directory = open_file(".", O_RDONLY | O_DIRECTORY);
	if (!name_to_handle_at(directory, "linked", &linked.handle, &mount, 0)) {
		int file = open_by_handle_at(directory, &linked.handle, O_RDWR);
		if (file < 0)
			err(1, "open_by_handle_at");
		did_file("open", "linked", file, 0, 0, 0);
		read_on("linked", file, 0, OPERATIONS);
		close_file("linked", file);
	}
	close_file(".", directory);
}

/* Both processes have read a part before anybody watches; the second shares the position of the first. */
static void do_early(void)
{
	char line[64];
	int barrier[2];
	int file = open_file("early", O_RDWR);
	int appended = open_file("early-appended", O_WRONLY | O_APPEND);
	int closed = open_file("early-closed", O_RDONLY);
	if (pipe(barrier) || read(file, buffer, PIECE_BYTES) != PIECE_BYTES)
		err(1, "early");
	fflush(stdout);
	if (fork() == 0) {
		close(barrier[1]);
		if (read(barrier[0], line, 1) != 1)
			err(1, "barrier");
		read_on("early", file, PIECE_BYTES, OPERATIONS);
		close_file("early", file);
		exit(0);
	}
	printf("ready\n");
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		err(1, "no line on the standard input");
	if (write(barrier[1], "x", 1) != 1)
		err(1, "barrier");
	wait_for_child();
	read_on("early", file, (1 + OPERATIONS) * PIECE_BYTES, OPERATIONS);
	for (int i = 0; i < 5; i++)
		did("write", "early-appended", 61 + i * 67, 67, write(appended, buffer, 67), SOURCE_SYSCALL, IO_APPEND);
	close_file("early", file);
	close_file("early-appended", appended);
	close_file("early-closed", closed);
}

int main(int argc, char **argv)
{
	if (argc < 2)
		errx(2, "usage: descriptors DIRECTORY [early]");
	told_init(argv[1]);
	if (argc == 4) {
		int file = atoi(argv[3]);
		read_on("inherited", file, OPERATIONS * PIECE_BYTES, OPERATIONS);
		close_file("inherited", file);
	} else if (argc == 3) {
		do_early();
	} else {
		do_inherited(argv[0]);
		do_passed();
		do_duplicated();
		do_without_names();
		do_by_handle();
	}
	return 0;
}

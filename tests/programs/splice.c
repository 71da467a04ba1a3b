// SPDX-License-Identifier: Apache-2.0
/*
 * sendfile, splice and copy_file_range between files, pipes and sockets, in prime numbers; tee and vmsplice, which move no
 * data of a file. Tells what it did as told.h says; a side that is no file is not told.
 *
 *	splice DIRECTORY
 */
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "told.h"

enum {
	SOURCE_BYTES = 97 * 1009,
	LARGE_BYTES = 300007,
	PIECE_BYTES = 1009,
	OPERATIONS = 7,
	PAGE_BYTES = 4096,
};

static int pipe_ends[2];

/* Both sides of a transfer between files; a name of NULL is no file. */
static void moved(const char *from, int64_t from_offset, bool from_named, const char *to, int64_t to_offset,
		  bool to_named, int64_t asked, int64_t result)
{
	if (from)
		did("read", from, from_offset, asked, result, SOURCE_SPLICE, from_named ? IO_POSITIONED : 0);
	if (to)
		did("write", to, to_offset, asked, result, SOURCE_SPLICE, to_named ? IO_POSITIONED : 0);
}

static void drain(int descriptor, int64_t bytes)
{
	char buffer[PIECE_BYTES];
	for (ssize_t got; bytes > 0; bytes -= got)
		if ((got = read(descriptor, buffer, sizeof(buffer))) <= 0)
			err(1, "empty a pipe or socket");
}

static void do_sendfile(int in)
{
	int out = open_file("sent", O_RDWR | O_CREAT | O_EXCL);
	for (int64_t i = 0; i < OPERATIONS; i++) {
		off_t offset = i * 2003;
		moved("source", i * 2003, true, "sent", i * PIECE_BYTES, false, PIECE_BYTES,
		      sendfile(out, in, &offset, PIECE_BYTES));
	}
	for (int64_t i = 0; i < OPERATIONS; i++)
		moved("source", i * PIECE_BYTES, false, "sent", (OPERATIONS + i) * PIECE_BYTES, false, PIECE_BYTES,
		      sendfile(out, in, NULL, PIECE_BYTES));
	off_t end = SOURCE_BYTES - 101;
	moved("source", SOURCE_BYTES - 101, true, "sent", 2 * OPERATIONS * PIECE_BYTES, false, PIECE_BYTES,
	      sendfile(out, in, &end, PIECE_BYTES)); /* short */
	unsigned int asked = ask_times(out);
	int64_t result = sendfile(out, in, &(off_t){0}, 67);
	did("read", "source", 0, 67, result, SOURCE_SPLICE, IO_POSITIONED);
	did("write", "sent", 2 * OPERATIONS * PIECE_BYTES + 101, 67, result, SOURCE_SPLICE, asked);
	close_file("sent", out);

	int sockets[2];
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets))
		err(1, "socketpair");
	for (int64_t i = 0; i < OPERATIONS; i++) {
		off_t offset = i * 3001;
		moved("source", i * 3001, true, NULL, 0, false, PIECE_BYTES,
		      sendfile(sockets[0], in, &offset, PIECE_BYTES));
		drain(sockets[1], PIECE_BYTES);
	}
	for (int64_t i = 0; i < OPERATIONS; i++) {
		moved("source", (OPERATIONS + i) * PIECE_BYTES, false, NULL, 0, false, PIECE_BYTES,
		      sendfile(pipe_ends[1], in, NULL, PIECE_BYTES));
		drain(pipe_ends[0], PIECE_BYTES);
	}
	close(sockets[0]);
	close(sockets[1]);

	/* More than the pipe inside the kernel holds: many rounds in there, one operation for the program. */
	make_file("large", LARGE_BYTES);
	int large = open_file("large", O_RDONLY);
	int copy = open_file("large-copy", O_WRONLY | O_CREAT | O_EXCL);
	moved("large", 0, false, "large-copy", 0, false, LARGE_BYTES, sendfile(copy, large, NULL, LARGE_BYTES));
	close_file("large-copy", copy);
	close_file("large", large);
}

static void do_splice(int in)
{
	int out = open_file("spliced", O_RDWR | O_CREAT | O_EXCL);
	for (int64_t i = 0; i < OPERATIONS; i++) {
		off64_t from = i * 4001, to = i * 5003;
		moved("source", i * 4001, true, NULL, 0, false, PIECE_BYTES,
		      splice(in, &from, pipe_ends[1], NULL, PIECE_BYTES, 0));
		moved(NULL, 0, false, "spliced", i * 5003, true, PIECE_BYTES,
		      splice(pipe_ends[0], NULL, out, &to, PIECE_BYTES, 0));
	}
	int64_t position = 2 * OPERATIONS * PIECE_BYTES; /* where sendfile left the source */
	for (int64_t i = 0; i < OPERATIONS; i++) {
		moved("source", position + i * PIECE_BYTES, false, NULL, 0, false, PIECE_BYTES,
		      splice(in, NULL, pipe_ends[1], NULL, PIECE_BYTES, SPLICE_F_MOVE));
		moved(NULL, 0, false, "spliced", i * PIECE_BYTES, false, PIECE_BYTES,
		      splice(pipe_ends[0], NULL, out, NULL, PIECE_BYTES, SPLICE_F_MOVE));
	}
	/* The pipe has less than is asked for. */
	off64_t last = SOURCE_BYTES - 53;
	moved("source", SOURCE_BYTES - 53, true, NULL, 0, false, 101, splice(in, &last, pipe_ends[1], NULL, 101, 0));
	moved(NULL, 0, false, "spliced", OPERATIONS * PIECE_BYTES, false, 101,
	      splice(pipe_ends[0], NULL, out, NULL, 101, 0));
	close_file("spliced", out);

	int appended = open_file("appended", O_WRONLY | O_CREAT | O_EXCL | O_APPEND);
	expect("write", write(pipe_ends[1], "0123456789abc", 13), 13);
	did("write", "appended", 0, 13, answer(splice(pipe_ends[0], NULL, appended, NULL, 13, 0)), SOURCE_SPLICE,
	    IO_APPEND); /* EINVAL, the kernel does not append by splice */
	drain(pipe_ends[0], 13);
	close_file("appended", appended);
}

static void do_copy_file_range(int in)
{
	int out = open_file("copied", O_RDWR | O_CREAT | O_EXCL);
	int64_t position = 3 * OPERATIONS * PIECE_BYTES;
	for (int64_t i = 0; i < OPERATIONS; i++) {
		off64_t from = i * 6007, to = 200003 + i * 7001;
		moved("source", from, true, "copied", to, true, PIECE_BYTES,
		      copy_file_range(in, &(off64_t){from}, out, &(off64_t){to}, PIECE_BYTES, 0));
		moved("source", position, false, "copied", i * PIECE_BYTES * 2, false, PIECE_BYTES,
		      copy_file_range(in, NULL, out, NULL, PIECE_BYTES, 0));
		position += PIECE_BYTES;
		moved("source", from, true, "copied", i * PIECE_BYTES * 2 + PIECE_BYTES, false, PIECE_BYTES,
		      copy_file_range(in, &(off64_t){from}, out, NULL, PIECE_BYTES, 0));
		moved("source", position, false, "copied", to + PIECE_BYTES, true, PIECE_BYTES,
		      copy_file_range(in, NULL, out, &(off64_t){to + PIECE_BYTES}, PIECE_BYTES, 0));
		position += PIECE_BYTES;
	}
	close_file("copied", out);
}

/* Offsets on a page that is in memory but not mapped when the call begins. */
static void do_unmapped_offsets(int in)
{
	make_file("offsets", PAGE_BYTES);
	int file = open_file("offsets", O_RDWR), out = open_file("placed", O_RDWR | O_CREAT | O_EXCL);
	off64_t *offsets = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (offsets == MAP_FAILED)
		err(1, "mmap");
	for (int64_t i = 1; i <= OPERATIONS; i++) {
		offsets[0] = i * 8009;
		offsets[1] = i * 9001;
		if (madvise(offsets, PAGE_BYTES, MADV_DONTNEED))
			err(1, "madvise");
		moved("source", i * 8009, true, "placed", i * 9001, true, PIECE_BYTES,
		      copy_file_range(in, &offsets[0], out, &offsets[1], PIECE_BYTES, 0));
	}
	munmap(offsets, PAGE_BYTES);
	close_file("placed", out);
	close_file("offsets", file);
}

/* Moves data between pipes and memory only. */
static void do_without_files(void)
{
	int other[2];
	char text[] = "in a pipe and nowhere else";
	struct iovec vector = {text, sizeof(text)};
	if (pipe(other))
		err(1, "pipe");
	for (int i = 0; i < OPERATIONS; i++) {
		expect("vmsplice", vmsplice(pipe_ends[1], &vector, 1, 0), sizeof(text));
		expect("tee", tee(pipe_ends[0], other[1], sizeof(text), 0), sizeof(text));
		expect("splice", splice(pipe_ends[0], NULL, other[1], NULL, sizeof(text), 0), sizeof(text));
		drain(other[0], 2 * sizeof(text));
	}
	close(other[0]);
	close(other[1]);
}

int main(int argc, char **argv)
{
	if (argc != 2)
		errx(2, "usage: splice DIRECTORY");
	told_init(argv[1]);
	if (pipe(pipe_ends))
		err(1, "pipe");
	make_file("source", SOURCE_BYTES);
	int in = open_file("source", O_RDONLY);
	do_sendfile(in);
	do_splice(in);
	do_copy_file_range(in);
	do_unmapped_offsets(in);
	do_without_files();
	expect("sendfile of a closed descriptor", sendfile(pipe_ends[1], 1021, NULL, PIECE_BYTES), -1);
	close_file("source", in);
	return 0;
}

// SPDX-License-Identifier: Apache-2.0
/*
 * The read and write families with every flag of a descriptor and of a call, calls that fail or move nothing, long vectors,
 * large requests and large offsets. Tells what it did as told.h says. No call is interrupted by a signal: those on regular
 * files never are.
 *
 *	flags DIRECTORY
 */
#include <sys/mman.h>
#include <sys/uio.h>

#include "told.h"

#ifndef RWF_NOAPPEND
#define RWF_NOAPPEND 0x20 /* since 6.9 */
#endif

enum {
	PIECE_BYTES = 101,
	BLOCK_BYTES = 4096,
	VECTORS = 1021,
	READ_WRITE_BYTES_MAX = 0x7ffff000, /* MAX_RW_COUNT of the kernel */
	WINDOW_BYTES = 2 << 20,
};

static char *buffer; /* aligned for direct I/O */

static void write_at(const char *name, int file, int64_t offset, int64_t bytes, unsigned int flags)
{
	did("write", name, offset, bytes, answer(pwrite(file, buffer, bytes, offset)), SOURCE_SYSCALL,
	    IO_POSITIONED | flags);
}

static void read_at(const char *name, int file, int64_t offset, int64_t bytes, unsigned int flags)
{
	did("read", name, offset, bytes, answer(pread(file, buffer, bytes, offset)), SOURCE_SYSCALL,
	    IO_POSITIONED | flags);
}

static int64_t end_of(int file)
{
	int64_t position = lseek(file, 0, SEEK_CUR), end = lseek(file, 0, SEEK_END);
	if (lseek(file, position, SEEK_SET) != position)
		err(1, "lseek");
	return end;
}

static void do_call_flags(void)
{
	static const struct {
		int call;
		unsigned int flag;
	} flags[] = {{RWF_DSYNC, IO_DSYNC}, {RWF_SYNC, IO_SYNC}, {RWF_HIPRI, IO_HIPRI}, {0, 0}};
	struct iovec vectors[3] = {{buffer, 7}, {buffer + 7, 11}, {buffer + 18, 13}};
	unsigned int both = IO_POSITIONED | IO_VECTORED;
	int file = open_file("called", O_RDWR | O_CREAT | O_EXCL);
	for (int i = 0; i < 4; i++) {
		did("write", "called", i * 37, 31, answer(pwritev2(file, vectors, 3, i * 37, flags[i].call)),
		    SOURCE_SYSCALL, both | flags[i].flag);
		/* Offset -1: the file position. */
		did("write", "called", i * 31, 31, answer(pwritev2(file, vectors, 3, -1, flags[i].call)),
		    SOURCE_SYSCALL, IO_VECTORED | flags[i].flag);
	}
	expect("lseek", lseek(file, 17, SEEK_SET), 17);
	for (int i = 0; i < 5; i++) {
		did("read", "called", 17 + i * 18, 18, answer(preadv2(file, vectors, 2, -1, 0)), SOURCE_SYSCALL,
		    IO_VECTORED);
		did("read", "called", i * 19, 31, answer(preadv2(file, vectors, 3, i * 19, RWF_HIPRI)), SOURCE_SYSCALL,
		    both | IO_HIPRI);
		did("read", "called", i * 23, 31, answer(preadv2(file, vectors, 3, i * 23, RWF_NOWAIT)), SOURCE_SYSCALL,
		    both | IO_NOWAIT);
	}
	for (int i = 0; i < 3; i++) {
		int64_t end = end_of(file);
		did("write", "called", end, 31, answer(pwritev2(file, vectors, 3, 5, RWF_APPEND)), SOURCE_SYSCALL,
		    both | IO_APPEND);
	}
	did_file("fsync", "called", 0, 0, fsync(file), 0);
	did_file("fadvise", "called", 0, 0, posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED), POSIX_FADV_DONTNEED << 16);
	/*
	 * Not in the page cache, and not to be waited for: EAGAIN, but for btrfs, which has so small a file in its metadata,
	 * so that nobody can say from where it came.
	 */
	tell(gettid(), "read", "called", 5, 31, answer(preadv2(file, vectors, 3, 5, RWF_NOWAIT)), SOURCE_SYSCALL,
	     both | IO_NOWAIT, MISSED_UNKNOWN);
	/* A flag that no kernel knows. */
	did("read", "called", 3, 31, answer(preadv2(file, vectors, 3, 3, 1 << 30)), SOURCE_SYSCALL, both);
	/* More than there is, at the file position. */
	struct iovec absurd = {buffer, SIZE_MAX};
	did("read", "called", 17 + 5 * 18, UINT32_MAX, answer(preadv2(file, &absurd, 1, -1, 0)), SOURCE_SYSCALL,
	    IO_VECTORED);
	close_file("called", file);
}

static void do_descriptor_flags(void)
{
	int file = open_file("appended", O_RDWR | O_CREAT | O_EXCL | O_APPEND);
	for (int i = 0; i < 5; i++)
		did("write", "appended", i * PIECE_BYTES, PIECE_BYTES, answer(write(file, buffer, PIECE_BYTES)),
		    SOURCE_SYSCALL, IO_APPEND);
	/* Linux appends, whatever pwrite says. */
	did("write", "appended", 5 * PIECE_BYTES, 53, answer(pwrite(file, buffer, 53, 3)), SOURCE_SYSCALL,
	    IO_APPEND | IO_POSITIONED);
	struct iovec vector = {buffer, 59};
	int null = open("/dev/null", O_WRONLY);
	bool known = pwritev2(null, &vector, 1, 0, RWF_NOAPPEND) == 59;
	close(null);
	if (known)
		did("write", "appended", 7, 59, answer(pwritev2(file, &vector, 1, 7, RWF_NOAPPEND)), SOURCE_SYSCALL,
		    IO_POSITIONED | IO_VECTORED);
	/* Reading where a file that is appended to has its position. */
	expect("lseek", lseek(file, 11, SEEK_SET), 11);
	did("read", "appended", 11, 13, answer(read(file, buffer, 13)), SOURCE_SYSCALL, IO_APPEND);
	close_file("appended", file);

	file = open_file("changed", O_RDWR | O_CREAT | O_EXCL);
	for (int i = 0; i < 3; i++)
		did("write", "changed", i * 67, 67, answer(write(file, buffer, 67)), SOURCE_SYSCALL, 0);
	expect("lseek", lseek(file, 5, SEEK_SET), 5);
	expect("fcntl", fcntl(file, F_SETFL, O_APPEND), 0);
	for (int i = 3; i < 8; i++)
		did("write", "changed", i * 67, 67, answer(write(file, buffer, 67)), SOURCE_SYSCALL, IO_APPEND);
	expect("fcntl", fcntl(file, F_SETFL, 0), 0);
	write_at("changed", file, 2, 71, 0);
	expect("lseek", lseek(file, 73, SEEK_SET), 73);
	did("write", "changed", 73, 67, answer(write(file, buffer, 67)), SOURCE_SYSCALL, 0);
	close_file("changed", file);

	file = open_file("synchronous", O_RDWR | O_CREAT | O_EXCL | O_SYNC);
	for (int i = 0; i < 3; i++)
		write_at("synchronous", file, i * 79, 83, IO_SYNC);
	close_file("synchronous", file);
	file = open_file("synchronous", O_RDWR | O_DSYNC);
	for (int i = 0; i < 3; i++)
		write_at("synchronous", file, i * 89, 97, IO_DSYNC);
	close_file("synchronous", file);

	file = open_file("direct", O_RDWR | O_CREAT | O_EXCL | O_DIRECT);
	for (int i = 0; i < 7; i++)
		write_at("direct", file, i * BLOCK_BYTES, BLOCK_BYTES, IO_DIRECT);
	for (int i = 0; i < 5; i++)
		read_at("direct", file, i * BLOCK_BYTES, BLOCK_BYTES, IO_DIRECT);
	read_at("direct", file, 6 * BLOCK_BYTES, 3 * BLOCK_BYTES, IO_DIRECT); /* short */
	read_at("direct", file, 101, BLOCK_BYTES, IO_DIRECT); /* EINVAL */
	close_file("direct", file);
}

/* Which writes are to files whose times somebody has asked for since they changed. */
static void do_asked_times(void)
{
	struct iovec vector = {buffer, 61};
	int file = open_file("asked", O_RDWR | O_CREAT | O_EXCL);
	for (int i = 0; i < 23; i++)
		write_at("asked", file, i * 61, 61, i % 3 ? 0 : ask_times(file));
	unsigned int asked = ask_times(file);
	read_at("asked", file, 0, 61, 0);
	write_at("asked", file, 7, 0, asked); /* changes nothing */
	did("write", "asked", 11, 61, answer(pwritev(file, &vector, 1, 11)), SOURCE_SYSCALL,
	    IO_POSITIONED | IO_VECTORED | asked);
	asked = ask_times(file);
	did("write", "asked", 0, 61, answer(write(file, buffer, 61)), SOURCE_SYSCALL, asked);
	/* Asks for its size alone. */
	struct statx status;
	expect("statx", statx(file, "", AT_EMPTY_PATH, STATX_SIZE, &status), 0);
	write_at("asked", file, 13, 61, 0);
	did_file("fsync", "asked", 0, 0, fsync(file), 0);
	close_file("asked", file);
	file = open_file("asked", O_RDWR | O_DIRECT);
	for (int i = 0; i < 7; i++)
		write_at("asked", file, i * BLOCK_BYTES, BLOCK_BYTES, IO_DIRECT | (i % 2 ? ask_times(file) : 0));
	close_file("asked", file);
}

static void do_nothing_moved(void)
{
	make_file("still", 1009);
	int file = open_file("still", O_RDWR);
	char *volatile nowhere = (char *)8;
	did("read", "still", 0, 0, answer(read(file, buffer, 0)), SOURCE_SYSCALL, 0);
	did("write", "still", 0, 0, answer(write(file, buffer, 0)), SOURCE_SYSCALL, 0);
	read_at("still", file, 1009, 31, 0); /* end of the file */
	read_at("still", file, 5003, 31, 0);
	did("read", "still", 0, 67, answer(pread(file, nowhere, 67, 0)), SOURCE_SYSCALL, IO_POSITIONED);
	did("write", "still", 71, 67, answer(pwrite(file, nowhere, 67, 71)), SOURCE_SYSCALL, IO_POSITIONED);
	did("read", "still", 73, 0, answer(preadv(file, NULL, 0, 73)), SOURCE_SYSCALL, IO_POSITIONED | IO_VECTORED);
	close_file("still", file);
	expect("read of a closed descriptor", pread(file, buffer, 31, 0), -1);
	file = open_file("still", O_WRONLY);
	did("read", "still", 0, 31, answer(read(file, buffer, 31)), SOURCE_SYSCALL, 0); /* EBADF, but there is a file */
	close_file("still", file);
	file = open(told_directory, O_RDONLY | O_DIRECTORY);
	did_file("open", ".", file, 0, 0, IO_DIRECTORY);
	expect("read of a directory", read(file, buffer, 31), -1); /* EISDIR: not a file of data */
	close_file(".", file);
}

static void do_long_vectors(void)
{
	struct iovec *vectors = calloc(VECTORS, sizeof(*vectors));
	for (int i = 0; i < VECTORS; i++)
		vectors[i] = (struct iovec){buffer + i, 1 + i % 7};
	int64_t bytes = 0, part = 0;
	for (int i = 0; i < VECTORS; i++) {
		bytes += vectors[i].iov_len;
		part += i < 131 ? vectors[i].iov_len : 0;
	}
	int file = open_file("vectors", O_RDWR | O_CREAT | O_EXCL);
	did("write", "vectors", 0, bytes, answer(writev(file, vectors, VECTORS)), SOURCE_SYSCALL, IO_VECTORED);
	did("read", "vectors", bytes - 41, part, answer(preadv(file, vectors, 131, bytes - 41)), SOURCE_SYSCALL,
	    IO_POSITIONED | IO_VECTORED); /* short: 41 bytes are there */
	did("read", "vectors", 3, bytes, answer(preadv(file, vectors, VECTORS, 3)), SOURCE_SYSCALL,
	    IO_POSITIONED | IO_VECTORED); /* short by 3 */
	close_file("vectors", file);
	free(vectors);
}

/* 3 GiB asked for: a hole, read directly into the same 2 MiB of memory again and again. */
static void do_large(void)
{
	const int64_t asked = (int64_t)3 << 30, far = ((int64_t)5 << 30) + 4096 * 101;
	int memory = memfd_create("window", 0);
	char *place = mmap(NULL, asked, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (place == MAP_FAILED || ftruncate(memory, WINDOW_BYTES))
		err(1, "address space");
	for (int64_t at = 0; at < asked; at += WINDOW_BYTES)
		if (mmap(place + at, WINDOW_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memory, 0) ==
		    MAP_FAILED)
			err(1, "mmap");
	int file = open_file("large", O_RDWR | O_CREAT | O_EXCL);
	for (int i = 0; i < 3; i++)
		write_at("large", file, far + i * 103, 107, 0);
	for (int i = 0; i < 3; i++)
		read_at("large", file, far + i * 103, 107, 0);
	expect("lseek", lseek(file, far + 1, SEEK_SET), far + 1);
	did("read", "large", far + 1, 109, answer(read(file, buffer, 109)), SOURCE_SYSCALL, 0);
	close_file("large", file);

	file = open_file("large", O_RDONLY | O_DIRECT);
	int64_t got = answer(pread(file, place, asked, 0));
	expect("a large read", got, READ_WRITE_BYTES_MAX);
	/* All of it is a hole: no device was asked. */
	tell(gettid(), "read", "large", 0, asked, got, SOURCE_SYSCALL, IO_POSITIONED | IO_DIRECT, MISSED_UNKNOWN);
	close_file("large", file);
	/* More than 32 bits can say is recorded as the largest number that they can. */
	file = open_file("still", O_RDONLY);
	did("read", "still", 1000, UINT32_MAX, answer(pread(file, place, ((size_t)1 << 32) + 1009, 1000)),
	    SOURCE_SYSCALL, IO_POSITIONED);
	close_file("still", file);
	munmap(place, asked);
	close(memory);
}

int main(int argc, char **argv)
{
	if (argc != 2)
		errx(2, "usage: flags DIRECTORY");
	told_init(argv[1]);
	if (posix_memalign((void **)&buffer, BLOCK_BYTES, 16 * BLOCK_BYTES))
		errx(1, "no memory");
	memset(buffer, 'x', 16 * BLOCK_BYTES);
	do_call_flags();
	do_descriptor_flags();
	do_asked_times();
	do_nothing_moved();
	do_long_vectors();
	do_large();
	return 0;
}

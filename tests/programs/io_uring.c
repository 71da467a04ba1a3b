// SPDX-License-Identifier: Apache-2.0
/*
 * io_uring in prime numbers: every kind of read and write, chains, registered buffers and files, SQPOLL, and the
 * operations on files that move no data. Tells what it did as told.h says.
 *
 *	io_uring DIRECTORY [left]
 *
 * left: only a process that ends with more requests in flight than its ring has room for.
 */
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

#include "ring_batch.h"

#ifndef RWF_NOAPPEND
#define RWF_NOAPPEND 0x20
#endif

enum {
	DIRECT_BLOCKS = 31,
	BATCH = 13,
	COLD_BYTES = 61 * BLOCK_BYTES,
};

static void do_buffered(struct io_uring *ring)
{
	int file = open_file("buffered", O_RDWR | O_CREAT | O_EXCL);
	for (int i = 0; i < 7; i++)
		add(ring, "write", "buffered", file, 1009, i * 1009, 0, 0);
	run(ring);
	for (int i = 0; i < 11; i++)
		add(ring, "read", "buffered", file, 211, i * 509, 0, 0);
	add(ring, "read", "buffered", file, 37, 7 * 1009 - 5, 0, 0); /* short */
	add(ring, "read", "buffered", file, 37, 8009, 0, 0); /* behind the end */
	run(ring);
	for (int i = 0; i < 5; i++) /* by a worker thread of the kernel */
		add(ring, i % 2 ? "read" : "write", "buffered", file, 113, i * 127, IOSQE_ASYNC, 0);
	run(ring);

	struct iovec vectors[3] = {{buffer, 7}, {buffer + 7, 11}, {buffer + 18, 13}};
	for (int i = 0; i < 5; i++) {
		bool is_read = i % 2;
		struct io_uring_sqe *entry =
			next(ring, is_read ? "read" : "write", "buffered", i * 101, 31, IO_POSITIONED | IO_VECTORED);
		if (is_read)
			io_uring_prep_readv(entry, file, vectors, 3, i * 101);
		else
			io_uring_prep_writev(entry, file, vectors, 3, i * 101);
		tag(entry, 0);
	}
	struct io_uring_sqe *entry = next(ring, "write", "buffered", 53, 18, IO_POSITIONED | IO_VECTORED | IO_DSYNC);
	io_uring_prep_writev2(entry, file, vectors, 2, 53, RWF_DSYNC);
	tag(entry, 0);
	run(ring);
	close_file("buffered", file);
}

/* The times of a file are asked for once: of the requests after that the first one changes them, in a chain, too. */
static void do_asked_times(struct io_uring *ring)
{
	int file = open_file("asked", O_RDWR | O_CREAT | O_EXCL);
	for (int i = 0; i < 14; i++) {
		unsigned int asked = i % 7 ? 0 : ask_times(file);
		add(ring, "write", "asked", file, 1009, i * 1009, 0, asked);
		if (i % 7 == 6)
			run(ring);
	}
	unsigned int asked = ask_times(file);
	add(ring, "read", "asked", file, 71, 0, IOSQE_IO_LINK, 0);
	add(ring, "write", "asked", file, 71, 0, IOSQE_IO_LINK, IO_LINKED | asked);
	add(ring, "write", "asked", file, 71, 0, 0, IO_LINKED);
	run(ring);
	close_file("asked", file);
}

/* Offset -1: the file position, and the end of a file that is appended to. */
static void do_positions(struct io_uring *ring)
{
	int file = open_file("position", O_RDWR | O_CREAT | O_EXCL);
	for (int i = 0; i < 7; i++) {
		struct io_uring_sqe *entry = next(ring, "write", "position", i * 307, 307, 0);
		io_uring_prep_write(entry, file, buffer, 307, -1);
		tag(entry, 0);
		run(ring);
	}
	if (lseek(file, 101, SEEK_SET) != 101)
		err(1, "lseek");
	for (int i = 0; i < 5; i++) {
		struct io_uring_sqe *entry = next(ring, "read", "position", 101 + i * 103, 103, 0);
		io_uring_prep_read(entry, file, buffer, 103, -1);
		tag(entry, 0);
		run(ring);
	}
	close_file("position", file);

	file = open_file("appended", O_WRONLY | O_CREAT | O_EXCL | O_APPEND);
	for (int i = 0; i < 7; i++) {
		struct io_uring_sqe *entry = next(ring, "write", "appended", i * 59, 59, IO_APPEND);
		io_uring_prep_write(entry, file, buffer, 59, -1);
		tag(entry, 0);
		run(ring);
	}
	/* Not at the end after all; before 6.9 the kernel refuses it. */
	for (int i = 0; i < 3; i++) {
		struct io_uring_sqe *entry = next(ring, "write", "appended", i * 11, 11, IO_POSITIONED);
		io_uring_prep_write(entry, file, buffer, 11, i * 11);
		entry->rw_flags = RWF_NOAPPEND;
		tag(entry, 0);
		run(ring);
	}
	close_file("appended", file);
}

static void do_direct(struct io_uring *ring)
{
	int file = open_file("direct", O_RDWR | O_CREAT | O_EXCL | O_DIRECT);
	for (int i = 0; i < DIRECT_BLOCKS; i++)
		add(ring, "write", "direct", file, BLOCK_BYTES, i * BLOCK_BYTES, 0, IO_DIRECT);
	run(ring);
	for (int i = 0; i < BATCH; i++)
		add(ring, "read", "direct", file, BLOCK_BYTES, (i * 7 % DIRECT_BLOCKS) * BLOCK_BYTES, 0, IO_DIRECT);
	run(ring);
	add(ring, "read", "direct", file, BLOCK_BYTES, 511, 0, IO_DIRECT); /* not aligned: EINVAL */
	run(ring);
	close_file("direct", file);
}

static void do_registered(struct io_uring *ring)
{
	int descriptors[2] = {open_file("registered", O_RDWR | O_CREAT | O_EXCL),
			      open_file("direct", O_RDWR | O_DIRECT)};
	struct iovec vector = {buffer, QUEUE_MAX * BLOCK_BYTES};
	if (io_uring_register_buffers(ring, &vector, 1) || io_uring_register_files(ring, descriptors, 2))
		errx(1, "io_uring_register");
	unsigned int flags = IO_POSITIONED | IO_FIXED_BUFFER;
	for (int i = 0; i < 5; i++) {
		struct io_uring_sqe *entry = next(ring, "write", "registered", i * 601, 601, flags);
		io_uring_prep_write_fixed(entry, 0, block_of(i), 601, i * 601, 0);
		tag(entry, IOSQE_FIXED_FILE);
	}
	run(ring);
	for (int i = 0; i < 7; i++) {
		struct io_uring_sqe *entry = next(ring, "read", "registered", i * 397, 397, flags);
		io_uring_prep_read_fixed(entry, descriptors[0], block_of(i), 397, i * 397, 0);
		tag(entry, 0);
		entry = next(ring, "read", "direct", i * 3 * BLOCK_BYTES, BLOCK_BYTES, flags | IO_DIRECT);
		io_uring_prep_read_fixed(entry, 1, block_of(7 + i), BLOCK_BYTES, i * 3 * BLOCK_BYTES, 0);
		tag(entry, IOSQE_FIXED_FILE);
	}
	run(ring);
	for (int i = 0; i < 3; i++)
		add(ring, "read", "registered", 0, 31, i * 37, IOSQE_FIXED_FILE, 0);
	run(ring);
	if (io_uring_unregister_files(ring) || io_uring_unregister_buffers(ring))
		errx(1, "io_uring_unregister");
	close_file("registered", descriptors[0]);
	close_file("direct", descriptors[1]);
}

static void add_fsync(struct io_uring *ring, const char *name, int descriptor, unsigned int fsync_flags,
		      unsigned int entry_flags, unsigned int flags)
{
	struct io_uring_sqe *entry =
		next(ring, fsync_flags & IORING_FSYNC_DATASYNC ? "fdatasync" : "fsync", name, 0, 0, flags);
	io_uring_prep_fsync(entry, descriptor, fsync_flags);
	tag(entry, entry_flags);
}

static void do_chains(struct io_uring *ring)
{
	int file = open_file("chain", O_RDWR | O_CREAT | O_EXCL);
	add(ring, "write", "chain", file, 1009, 0, IOSQE_IO_LINK, 0);
	add_fsync(ring, "chain", file, 0, IOSQE_IO_LINK, IO_LINKED);
	add(ring, "read", "chain", file, 1009, 0, IOSQE_IO_LINK, IO_LINKED);
	add(ring, "write", "chain", file, 503, 1009, IOSQE_IO_HARDLINK, IO_LINKED);
	add(ring, "read", "chain", file, 503, 1009, 0, IO_LINKED);
	run(ring);
	/* Each waits for all before it. */
	for (int i = 0; i < 5; i++)
		add(ring, i % 2 ? "read" : "write", "chain", file, 71, i * 73, i ? IOSQE_IO_DRAIN : 0,
		    i ? IO_LINKED : 0);
	run(ring);
	close_file("chain", file);

	/* Those behind wait as well; once it is over nobody does. */
	file = open_file("drained", O_RDWR | O_CREAT | O_EXCL | O_DIRECT);
	for (int i = 0; i < 5; i++)
		add(ring, i < 2 ? "write" : "read", "drained", file, BLOCK_BYTES, i % 2 * BLOCK_BYTES,
		    i == 1 ? IOSQE_IO_DRAIN : 0, i ? IO_DIRECT | IO_LINKED : IO_DIRECT);
	run(ring);
	add(ring, "read", "drained", file, BLOCK_BYTES, 0, 0, IO_DIRECT);
	run(ring);
	close_file("drained", file);
}

/* A short read breaks the chain: what follows is cancelled, has never been on a file and is no operation. */
static void do_broken_chain(struct io_uring *ring)
{
	int file = open_file("broken", O_RDWR | O_CREAT | O_EXCL);
	add(ring, "write", "broken", file, 101, 0, 0, 0);
	run(ring);
	add(ring, "read", "broken", file, 103, 0, IOSQE_IO_LINK, 0);
	for (int i = 0; i < 3; i++) {
		struct io_uring_sqe *entry = io_uring_get_sqe(ring);
		io_uring_prep_write(entry, file, buffer, 107, 0);
		io_uring_sqe_set_flags(entry, i < 2 ? IOSQE_IO_LINK : 0);
		io_uring_sqe_set_data(entry, NULL);
	}
	expect("io_uring_submit", io_uring_submit(ring), 4);
	for (int i = 0; i < 4; i++) {
		struct io_uring_cqe *event;
		if (io_uring_wait_cqe(ring, &event))
			errx(1, "io_uring_wait_cqe");
		if (io_uring_cqe_get_data(event))
			tell_request(io_uring_cqe_get_data(event), event->res);
		else
			expect("cancelled", event->res, -ECANCELED);
		io_uring_cqe_seen(ring, event);
	}
	request_count = 0;
	close_file("broken", file);
}

/* Reads of a file that is not in the page cache: the kernel tries, starts the device and tries again. */
static void do_cold(struct io_uring *ring)
{
	make_file("cold", COLD_BYTES);
	int file = open_file("cold", O_RDONLY);
	did_file("fadvise", "cold", 0, 0, posix_fadvise(file, 0, 0, POSIX_FADV_RANDOM), POSIX_FADV_RANDOM << 16);
	did_file("fadvise", "cold", 0, 0, posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED), POSIX_FADV_DONTNEED << 16);
	for (int i = 0; i < BATCH; i++) {
		add(ring, "read", "cold", file, BLOCK_BYTES, i * 4 * BLOCK_BYTES, 0, 0);
		requests[request_count - 1].missed = BLOCK_BYTES;
	}
	run(ring);
	for (int i = 0; i < BATCH; i++)
		add(ring, "read", "cold", file, BLOCK_BYTES, i * 4 * BLOCK_BYTES, 0, 0);
	run(ring);
	close_file("cold", file);
}

/* The success of these requests is not told to the program, so that the kernel does not say it to anybody else either. */
static void do_silent(struct io_uring *ring)
{
	int file = open_file("silent", O_RDWR | O_CREAT | O_EXCL);
	for (int i = 0; i < 5; i++)
		add(ring, "write", "silent", file, 83, i * 83, IOSQE_CQE_SKIP_SUCCESS | IOSQE_IO_LINK,
		    i ? IO_LINKED : 0);
	add(ring, "read", "silent", file, 79, 0, 0, IO_LINKED);
	expect("io_uring_submit", io_uring_submit(ring), 6);
	int result = take_result(ring);
	for (int i = 0; i < 6; i++)
		tell_request(&requests[i], i < 5 ? 83 : result);
	request_count = 0;
	close_file("silent", file);
}

/* The only one of its call, behind which nothing begins. Tells, as "silent NS", by when each had ended. */
static void do_silent_alone(struct io_uring *ring)
{
	for (int i = 0; i < 3; i++) {
		struct timespec now;
		int file = open_file("silent", O_RDONLY);
		struct io_uring_sqe *entry = next(ring, "close", "silent", file, 0, 0);
		io_uring_prep_close(entry, file);
		tag(entry, IOSQE_CQE_SKIP_SUCCESS);
		expect("io_uring_submit", io_uring_submit(ring), 1);
		clock_gettime(CLOCK_MONOTONIC, &now);
		printf("silent %lld\n", now.tv_sec * 1000000000ll + now.tv_nsec);
		tell_request(&requests[0], 0);
		request_count = 0;
	}
}

/* Makes a file by one request, of which is told what it will be named. Returns the descriptor. */
static int create(struct io_uring *ring, int directory, const char *path, int open_flags)
{
	struct io_uring_sqe *entry = next(ring, "open", path, 0, 0600, IO_CREATED);
	io_uring_prep_openat(entry, directory, path, O_RDWR | open_flags, 0600);
	tag(entry, 0);
	expect("io_uring_submit", io_uring_submit(ring), 1);
	requests[0].offset = take_result(ring);
	request_count = 0;
	return requests[0].offset;
}

static void do_unnamed(struct io_uring *ring)
{
	char name[32];
	struct statx status; /* asks for no times, which the first write would have among its flags */
	int file = create(ring, AT_FDCWD, told_directory, O_TMPFILE);
	expect("statx", statx(file, "", AT_EMPTY_PATH, STATX_INO, &status), 0);
	snprintf(name, sizeof(name), "#%llu", (unsigned long long)status.stx_ino);
	requests[0].name = name;
	tell_request(&requests[0], 0);
	add(ring, "write", name, file, 1009, 0, 0, 0);
	run(ring);
	close_file(name, file);
}

static void do_file_operations(struct io_uring *ring)
{
	char path[PATH_ROOM], other[PATH_ROOM];
	int directory = open_file(".", O_RDONLY | O_DIRECTORY);
	int file = create(ring, directory, "opened", O_CREAT);
	tell_request(&requests[0], 0);

	struct io_uring_sqe *entry = next(ring, "fallocate", "opened", 101, 10007, 0);
	io_uring_prep_fallocate(entry, file, 0, 101, 10007);
	tag(entry, IOSQE_IO_LINK);
	add(ring, "write", "opened", file, 1009, 0, IOSQE_IO_LINK, IO_LINKED);
	entry = next(ring, "sync_file_range", "opened", 0, 1009, IO_LINKED | SYNC_FILE_RANGE_WRITE << 16);
	io_uring_prep_sync_file_range(entry, file, 1009, 0, SYNC_FILE_RANGE_WRITE);
	tag(entry, IOSQE_IO_LINK);
	add_fsync(ring, "opened", file, 0, IOSQE_IO_LINK, IO_LINKED);
	add_fsync(ring, "opened", file, IORING_FSYNC_DATASYNC, IOSQE_IO_LINK, IO_LINKED);
	entry = next(ring, "fadvise", "opened", 103, 107, IO_LINKED | POSIX_FADV_WILLNEED << 16);
	io_uring_prep_fadvise(entry, file, 103, 107, POSIX_FADV_WILLNEED);
	tag(entry, IOSQE_IO_LINK);
	entry = next(ring, "close", "opened", file, 0, IO_LINKED);
	io_uring_prep_close(entry, file);
	tag(entry, 0);
	run(ring);

	path_of("opened", path);
	path_of("renamed", other);
	entry = next(ring, "mkdir", "made", 0, 0700, 0);
	io_uring_prep_mkdirat(entry, directory, "made", 0700);
	tag(entry, IOSQE_IO_LINK);
	entry = next(ring, "rename", "opened>renamed", 0, 0, IO_LINKED);
	io_uring_prep_renameat(entry, AT_FDCWD, path, AT_FDCWD, other, 0);
	tag(entry, IOSQE_IO_LINK);
	entry = next(ring, "rmdir", "made", 0, 0, IO_LINKED);
	io_uring_prep_unlinkat(entry, directory, "made", AT_REMOVEDIR);
	tag(entry, IOSQE_IO_LINK);
	entry = next(ring, "unlink", "opened", 0, 0, IO_LINKED);
	io_uring_prep_unlinkat(entry, directory, "renamed", 0);
	tag(entry, 0);
	run(ring);
	close_file(".", directory);
}

/* Moves data, but of no file. */
static void do_without_files(struct io_uring *ring)
{
	int sockets[2];
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets))
		err(1, "socketpair");
	for (int i = 0; i < 5; i++) {
		struct io_uring_sqe *entry = io_uring_get_sqe(ring);
		if (i % 2)
			io_uring_prep_read(entry, sockets[1], buffer, 11, 0);
		else
			io_uring_prep_write(entry, sockets[0], buffer, 11, 0);
		expect("io_uring_submit", io_uring_submit(ring), 1);
		expect("socket", take_result(ring), 11);
	}
	close(sockets[0]);
	close(sockets[1]);
}

/* A thread of the kernel submits; the requests are those of the program all the same. */
static void do_polled_queue(void)
{
	struct io_uring ring;
	ring_init(&ring, IORING_SETUP_SQPOLL);
	int file = open_file("polled", O_RDWR | O_CREAT | O_EXCL);
	for (int i = 0; i < 7; i++)
		add(&ring, "write", "polled", file, 1013, i * 1013, 0, 0);
	run(&ring);
	for (int i = 0; i < 11; i++)
		add(&ring, "read", "polled", file, 1013, (i % 7) * 1013, 0, 0);
	run(&ring);
	close_file("polled", file);
	io_uring_queue_exit(&ring);
}

static void do_deferred(void)
{
	struct io_uring ring;
	ring_init(&ring, IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN);
	int file = open_file("direct", O_RDWR | O_DIRECT);
	for (int i = 0; i < 17; i++)
		add(&ring, "read", "direct", file, BLOCK_BYTES, i * BLOCK_BYTES, 0, IO_DIRECT);
	run(&ring);
	close_file("direct", file);
	io_uring_queue_exit(&ring);
}

/* More completions than their ring has room for, by this thread and by workers of the kernel. */
static void do_overflow(void)
{
	enum { ENTRIES = 4, BATCHES = 7 };
	struct io_uring ring;
	int error = io_uring_queue_init(ENTRIES, &ring, 0);
	if (error)
		errx(1, "io_uring_queue_init: %s", strerror(-error));
	int file = open_file("overflown", O_RDWR | O_CREAT | O_EXCL);
	for (int i = 0; i < ENTRIES; i++)
		add(&ring, "write", "overflown", file, 1019, i * 1019, 0, 0);
	run(&ring);
	for (int batch = 0; batch < BATCHES; batch++) {
		for (int i = 0; i < ENTRIES; i++)
			add(&ring, "read", "overflown", file, 103 + batch, i * 107, i == 2 ? IOSQE_ASYNC : 0, 0);
		expect("io_uring_submit", io_uring_submit(&ring), ENTRIES);
	}
	take(&ring);
	close_file("overflown", file);
	io_uring_queue_exit(&ring);
}

/* Fills a ring of completions, and ends with reads in flight. */
static void leave_reads(struct io_uring *ring, int entries)
{
	int cached = open_file("overflown", O_RDONLY), direct = open_file("direct", O_RDONLY | O_DIRECT);
	for (int i = 0; i < 2 * entries; i++) {
		add(ring, "read", "overflown", cached, 103, i * 107, 0, 0);
		if (i % entries == entries - 1)
			expect("io_uring_submit", io_uring_submit(ring), entries);
	}
	for (int i = 0; i < BATCH; i++)
		add(ring, "read", "direct", direct, 19 * BLOCK_BYTES, 0, 0, IO_DIRECT);
	for (int i = 0; i < request_count; i++)
		tell_request(&requests[i], requests[i].asked);
	fflush(stdout);
	expect("io_uring_submit", io_uring_submit(ring), BATCH);
	_exit(0);
}

/* Completions for which there was no room, as /proc tells. */
static int count_overflown(const struct io_uring *ring)
{
	char path[64], line[256];
	int count = 0;
	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", ring->ring_fd);
	FILE *file = fopen(path, "re");
	if (!file)
		err(1, "%s", path);
	while (fgets(line, sizeof(line), file))
		count += strstr(line, "user_data=") != NULL;
	fclose(file);
	return count;
}

static void do_left(void)
{
	enum { ENTRIES = 16 };
	struct io_uring ring;
	int status, error = io_uring_queue_init(ENTRIES, &ring, 0);
	if (error)
		errx(1, "io_uring_queue_init: %s", strerror(-error));
	make_file("overflown", 2 * ENTRIES * 107);
	make_file("direct", DIRECT_BLOCKS * BLOCK_BYTES);
	fflush(stdout);
	pid_t process = fork();
	if (!process)
		leave_reads(&ring, ENTRIES);
	if (waitpid(process, &status, 0) < 0 || status)
		errx(1, "the process that leaves reads failed");
	while (count_overflown(&ring) < BATCH)
		usleep(1000);
	for (int i = 0; i < 2 * ENTRIES + BATCH; i++)
		take_result(&ring);
	io_uring_queue_exit(&ring);
}

int main(int argc, char **argv)
{
	struct io_uring ring;
	if (argc != 2 && (argc != 3 || strcmp(argv[2], "left")))
		errx(2, "usage: io_uring DIRECTORY [left]");
	told_init(argv[1]);
	if (posix_memalign((void **)&buffer, BLOCK_BYTES, QUEUE_MAX * BLOCK_BYTES))
		errx(1, "no memory");
	memset(buffer, 'x', QUEUE_MAX * BLOCK_BYTES);
	if (argc == 3) {
		do_left();
		return 0;
	}
	ring_init(&ring, 0);
	do_buffered(&ring);
	do_asked_times(&ring);
	do_positions(&ring);
	do_direct(&ring);
	do_registered(&ring);
	do_chains(&ring);
	do_broken_chain(&ring);
	do_cold(&ring);
	do_silent(&ring);
	do_silent_alone(&ring);
	do_unnamed(&ring);
	do_file_operations(&ring);
	do_without_files(&ring);
	do_polled_queue();
	do_deferred();
	do_overflow();
	io_uring_queue_exit(&ring);
	return 0;
}

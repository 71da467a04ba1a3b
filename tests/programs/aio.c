// SPDX-License-Identifier: Apache-2.0
/*
 * Asynchronous I/O by io_submit, raw, in prime numbers: every command, buffered and direct, several contexts and threads,
 * reaped by io_getevents and in the ring. Tells what it did as told.h says.
 *
 *	aio DIRECTORY [reaped|left|renewed|idle|unmapped|wide|moved|twice|replaced]
 *
 * reaped: without the requests that are in flight when their process ends; left: those alone. renewed: contexts one after the
 * other at the same address; idle: the same behind processes that leave contexts in which nothing was submitted; unmapped:
 * requests on a page that is not there when they are submitted; wide: a context for as many requests as the kernel's default
 * allows; moved: requests with a struct iocb that another context had before; twice: two requests at once with the same struct
 * iocb, which are told as one; replaced: requests of a process that becomes another program.
 */
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "aio_ring.h"
#include "told.h"

#ifndef RWF_NOAPPEND
#define RWF_NOAPPEND 0x20
#endif

enum {
	QUEUE_MAX = 64,
	BLOCK_BYTES = 4096,
	DIRECT_BLOCKS = 31,
	BATCH = 13,
	LEFT = 11, /* in flight at the end of a process */
	IDLE_PROCESSES = 43, /* one after the other */
	IDLE_CONTEXTS = 101, /* of each */
	REQUESTS_OF_ALL = 1 << 16, /* fs.aio-max-nr */
};

/* One request: what the kernel gets, and what will be told at its end. */
struct request {
	struct iocb block;
	const char *kind, *name;
	int64_t offset, asked, result;
	unsigned int flags;
	int thread;
};

static struct request requests[QUEUE_MAX];
static char *buffer; /* aligned for direct I/O */

static struct request *prepare(int slot, const char *kind, const char *name, int descriptor, int command,
			       int64_t offset, int64_t bytes, unsigned int flags)
{
	struct request *request = &requests[slot];
	memset(request, 0, sizeof(*request));
	request->block = (struct iocb){
		.aio_data = (uintptr_t)request,
		.aio_lio_opcode = command,
		.aio_fildes = descriptor,
		.aio_buf = (uintptr_t)buffer + slot * BLOCK_BYTES,
		.aio_nbytes = bytes,
		.aio_offset = offset,
	};
	request->kind = kind;
	request->name = name;
	request->offset = offset;
	request->asked = bytes;
	request->flags = flags | IO_POSITIONED;
	return request;
}

static aio_context_t context_init(unsigned int requests_max)
{
	aio_context_t context = 0;
	if (syscall(SYS_io_setup, requests_max, &context))
		err(1, "io_setup");
	return context;
}

static void context_deinit(aio_context_t context)
{
	if (syscall(SYS_io_destroy, context))
		err(1, "io_destroy");
}

/* Requests [first, first + count) by one call; returns how many the kernel took. */
static int submit(aio_context_t context, int first, int count)
{
	struct iocb *blocks[QUEUE_MAX];
	for (int i = 0; i < count; i++) {
		blocks[i] = &requests[first + i].block;
		requests[first + i].thread = gettid();
	}
	int taken = syscall(SYS_io_submit, context, count, blocks);
	if (taken < 0)
		err(1, "io_submit");
	return taken;
}

static void end(const struct io_event *event)
{
	struct request *request = (struct request *)(uintptr_t)event->data;
	bool is_data = !strcmp(request->kind, "read") || !strcmp(request->kind, "write");
	int64_t missed = strcmp(request->kind, "read") || event->res <= 0 ? MISSED_UNKNOWN
			 : request->flags & IO_DIRECT			  ? event->res
									  : 0;
	tell(request->thread, request->kind, request->name, request->offset, request->asked, event->res, SOURCE_AIO,
	     is_data ? request->flags : request->flags & ~IO_POSITIONED, missed);
}

static void reap(aio_context_t context, int count)
{
	struct io_event events[QUEUE_MAX];
	expect("io_getevents", syscall(SYS_io_getevents, context, count, QUEUE_MAX, events, NULL), count);
	for (int i = 0; i < count; i++)
		end(&events[i]);
}

/* As libaio and fio do it: without a system call. */
static void reap_in_ring(aio_context_t context, int count)
{
	struct aio_ring *ring = (struct aio_ring *)context;
	if (ring->magic != AIO_RING_MAGIC)
		errx(1, "the ring of this kernel is not known");
	for (int i = 0; i < count; i++) {
		unsigned int head = ring->head;
		while (head == ring->tail)
			usleep(100);
		end(&ring->events[head]);
		ring->head = (head + 1) % ring->entries;
	}
}

static void do_buffered(aio_context_t context)
{
	int file = open_file("buffered", O_RDWR | O_CREAT | O_EXCL);
	for (int i = 0; i < 7; i++)
		prepare(i, "write", "buffered", file, IOCB_CMD_PWRITE, i * 1009, 1009, 0);
	expect("io_submit", submit(context, 0, 7), 7);
	reap(context, 7);
	for (int i = 0; i < 11; i++)
		prepare(i, "read", "buffered", file, IOCB_CMD_PREAD, i * 509, 211, 0);
	prepare(11, "read", "buffered", file, IOCB_CMD_PREAD, 7 * 1009 - 5, 37, 0); /* short */
	prepare(12, "read", "buffered", file, IOCB_CMD_PREAD, 8009, 37, 0); /* behind the end */
	expect("io_submit", submit(context, 0, 13), 13);
	reap(context, 13);

	struct iovec vectors[3] = {{buffer, 7}, {buffer + 7, 11}, {buffer + 18, 13}};
	for (int i = 0; i < 5; i++) {
		bool is_read = i % 2;
		struct request *request =
			prepare(i, is_read ? "read" : "write", "buffered", file,
				is_read ? IOCB_CMD_PREADV : IOCB_CMD_PWRITEV, i * 101, 31, IO_VECTORED);
		request->block.aio_buf = (uintptr_t)vectors;
		request->block.aio_nbytes = 3;
	}
	prepare(5, "write", "buffered", file, IOCB_CMD_PWRITE, 17, 19, IO_DSYNC)->block.aio_rw_flags = RWF_DSYNC;
	expect("io_submit", submit(context, 0, 6), 6);
	reap_in_ring(context, 6);

	prepare(0, "fsync", "buffered", file, IOCB_CMD_FSYNC, 0, 0, 0)->block.aio_buf = 0;
	prepare(1, "fdatasync", "buffered", file, IOCB_CMD_FDSYNC, 0, 0, 0)->block.aio_buf = 0;
	expect("io_submit", submit(context, 0, 2), 2);
	reap(context, 2);
	close_file("buffered", file);
}

/* The times of two files are asked for once: of the requests of one call the first of each changes them. */
static void do_asked_times(aio_context_t context)
{
	int first = open_file("asked", O_RDWR | O_CREAT | O_EXCL);
	int second = open_file("asked2", O_RDWR | O_CREAT | O_EXCL);
	unsigned int flags = ask_times(first), flags2 = ask_times(second);
	for (int i = 0; i < 3; i++)
		prepare(i, "write", "asked", first, IOCB_CMD_PWRITE, i * 1013, 1013, i ? 0 : flags);
	for (int i = 3; i < 8; i++)
		prepare(i, "write", "asked2", second, IOCB_CMD_PWRITE, i * 1013, 1013, i > 3 ? 0 : flags2);
	expect("io_submit", submit(context, 0, 8), 8);
	reap(context, 8);
	close_file("asked", first);
	close_file("asked2", second);
}

static void do_direct(aio_context_t context)
{
	int file = open_file("direct", O_RDWR | O_CREAT | O_EXCL | O_DIRECT);
	for (int i = 0; i < DIRECT_BLOCKS; i++)
		prepare(i, "write", "direct", file, IOCB_CMD_PWRITE, i * BLOCK_BYTES, BLOCK_BYTES, IO_DIRECT);
	expect("io_submit", submit(context, 0, DIRECT_BLOCKS), DIRECT_BLOCKS);
	reap(context, DIRECT_BLOCKS);
	for (int i = 0; i < BATCH; i++)
		prepare(i, "read", "direct", file, IOCB_CMD_PREAD, (i * 7 % DIRECT_BLOCKS) * BLOCK_BYTES, BLOCK_BYTES,
			IO_DIRECT);
	expect("io_submit", submit(context, 0, BATCH), BATCH);
	reap_in_ring(context, BATCH);
	/* One at a time, while others run. */
	for (int i = 0; i < BATCH; i++) {
		prepare(i, "read", "direct", file, IOCB_CMD_PREAD, i * BLOCK_BYTES, BLOCK_BYTES, IO_DIRECT);
		expect("io_submit", submit(context, i, 1), 1);
	}
	reap(context, BATCH);
	prepare(0, "read", "direct", file, IOCB_CMD_PREAD, 511, BLOCK_BYTES, IO_DIRECT); /* not aligned: EINVAL */
	prepare(1, "read", "direct", file, IOCB_CMD_PREAD, (DIRECT_BLOCKS - 1) * BLOCK_BYTES, 2 * BLOCK_BYTES,
		IO_DIRECT); /* short */
	expect("io_submit", submit(context, 0, 2), 2);
	reap(context, 2);
	close_file("direct", file);
}

/* Not at the end, though the file is open for appending: since 6.9. */
static void do_placed(aio_context_t context)
{
	int file = open_file("placed", O_WRONLY | O_CREAT | O_EXCL | O_APPEND);
	struct iovec vector = {buffer, 101};
	int64_t placed = answer(pwritev2(file, &vector, 1, 0, RWF_NOAPPEND));
	did("write", "placed", 0, 101, placed, SOURCE_SYSCALL, IO_POSITIONED | IO_VECTORED);
	for (int i = 0; i < 3; i++)
		prepare(i, "write", "placed", file, IOCB_CMD_PWRITE, i * 11, 11, 0)->block.aio_rw_flags = RWF_NOAPPEND;
	if (placed > 0) {
		expect("io_submit", submit(context, 0, 3), 3);
		reap(context, 3);
	}
	close_file("placed", file);
}

/* A batch whose fourth request has no file: three are taken, the rest is not. */
static void do_failing(aio_context_t context)
{
	int file = open_file("buffered", O_RDWR);
	for (int i = 0; i < 5; i++)
		prepare(i, "read", "buffered", i == 3 ? 1021 : file, IOCB_CMD_PREAD, i * 307, 23, 0);
	expect("io_submit", submit(context, 0, 5), 3);
	reap(context, 3);
	int pipe_ends[2];
	if (pipe(pipe_ends) || write(pipe_ends[1], "in a pipe", 9) != 9)
		err(1, "pipe");
	prepare(0, "read", "pipe", pipe_ends[0], IOCB_CMD_PREAD, 0, 9, 0);
	expect("io_submit", submit(context, 0, 1), 1);
	struct io_event event;
	expect("io_getevents", syscall(SYS_io_getevents, context, 1, 1, &event, NULL), 1);
	expect("read of a pipe", event.res, 9);
	close(pipe_ends[0]);
	close(pipe_ends[1]);
	close_file("buffered", file);
}

static void *submit_all(void *context)
{
	expect("io_submit", submit((aio_context_t)context, 0, BATCH), BATCH);
	return NULL;
}

/* A thread submits and the main thread reaps, in two contexts whose requests run at the same time. */
static void do_contexts(void)
{
	aio_context_t first = context_init(QUEUE_MAX), second = context_init(QUEUE_MAX);
	int file = open_file("direct", O_RDWR | O_DIRECT);
	pthread_t thread;
	for (int i = 0; i < BATCH + 5; i++)
		prepare(i, "read", "direct", file, IOCB_CMD_PREAD, (i + 11) * BLOCK_BYTES, BLOCK_BYTES, IO_DIRECT);
	pthread_create(&thread, NULL, submit_all, (void *)first);
	expect("io_submit", submit(second, BATCH, 5), 5);
	pthread_join(thread, NULL);
	reap(second, 5);
	reap(first, BATCH);
	context_deinit(first);
	context_deinit(second);
	close_file("direct", file);
}

/* Ends without reaping: the kernel finishes the requests when it takes the context away. */
static void do_in_flight_at_exit(void)
{
	fflush(stdout);
	if (fork() == 0) {
		aio_context_t context = context_init(QUEUE_MAX);
		int file = open_file("direct", O_RDONLY | O_DIRECT);
		for (int i = 0; i < LEFT; i++)
			prepare(i, "read", "direct", file, IOCB_CMD_PREAD, i * 2 * BLOCK_BYTES, BLOCK_BYTES, IO_DIRECT);
		for (int i = 0; i < LEFT; i++) {
			requests[i].thread = gettid();
			struct io_event told = {.data = (uintptr_t)&requests[i], .res = BLOCK_BYTES};
			end(&told);
		}
		fflush(stdout);
		expect("io_submit", submit(context, 0, LEFT), LEFT);
		_exit(0);
	}
	int status;
	if (wait(&status) < 0 || status)
		errx(1, "the process that does not reap failed");
}

static void do_left(void)
{
	make_file("direct", DIRECT_BLOCKS * BLOCK_BYTES);
	do_in_flight_at_exit();
}

static void read_a_few(aio_context_t context, int file)
{
	for (int i = 0; i < 5; i++)
		prepare(i, "read", "buffered", file, IOCB_CMD_PREAD, i * 307, 23, 0);
	expect("io_submit", submit(context, 0, 5), 5);
	reap(context, 5);
}

/* The kernel gives each context the address of the one before. */
static void do_renewed(void)
{
	make_file("buffered", 5 * 307);
	int file = open_file("buffered", O_RDONLY);
	aio_context_t before = 0;
	for (int i = 0; i < 3; i++) {
		aio_context_t context = context_init(QUEUE_MAX);
		if (before)
			expect("address of the context", context, before);
		before = context;
		read_a_few(context, file);
		context_deinit(context);
	}
	close_file("buffered", file);
}

static void leave_contexts(void)
{
	struct io_event event;
	for (int i = 0; i < IDLE_CONTEXTS; i++)
		expect("io_getevents", syscall(SYS_io_getevents, context_init(1), 0, 1, &event, NULL), 0);
	_exit(0);
}

static void do_idle(void)
{
	for (int i = 0, status; i < IDLE_PROCESSES; i++) {
		if (fork() == 0)
			leave_contexts();
		if (wait(&status) < 0 || status)
			errx(1, "a process with contexts failed");
	}
	do_renewed();
}

static void do_wide(void)
{
	make_file("buffered", 5 * 307);
	int file = open_file("buffered", O_RDONLY);
	aio_context_t context = context_init(REQUESTS_OF_ALL);
	for (int i = 0; i < BATCH; i++)
		prepare(i, "read", "buffered", file, IOCB_CMD_PREAD, i * 101, 23, 0);
	expect("io_submit", submit(context, 0, BATCH), BATCH);
	reap_in_ring(context, BATCH);
	context_deinit(context);
	close_file("buffered", file);
}

/* Not done while they are being submitted, and taken without a call. */
static void sync_often(aio_context_t context, const char *name, int file)
{
	expect("pwrite", pwrite(file, buffer, QUEUE_MAX * BLOCK_BYTES, 0), QUEUE_MAX * BLOCK_BYTES);
	for (int i = 0; i < BATCH; i++)
		prepare(i, "fsync", name, file, IOCB_CMD_FSYNC, 0, 0, 0)->block.aio_buf = 0;
	expect("io_submit", submit(context, 0, BATCH), BATCH);
	reap_in_ring(context, BATCH);
}

/* Syncs of two contexts in turn: what the one has ended is taken from its ring, and submitted to the other. */
static void do_moved(void)
{
	aio_context_t contexts[] = {context_init(QUEUE_MAX), context_init(QUEUE_MAX)};
	make_file("moved", QUEUE_MAX * BLOCK_BYTES);
	int file = open_file("moved", O_RDWR);
	for (int round = 0; round < 7; round++)
		sync_often(contexts[round % 2], "moved", file);
	context_deinit(contexts[0]);
	context_deinit(contexts[1]);
	close_file("moved", file);
}

static void do_replaced(void)
{
	make_file("synced", QUEUE_MAX * BLOCK_BYTES);
	sync_often(context_init(QUEUE_MAX), "synced", open_file("synced", O_RDWR));
	fflush(stdout);
	execlp("true", "true", NULL);
	err(1, "true");
}

static void do_twice(void)
{
	aio_context_t context = context_init(QUEUE_MAX);
	make_file("buffered", BLOCK_BYTES);
	int file = open_file("buffered", O_RDONLY);
	struct request *request = prepare(0, "read", "buffered", file, IOCB_CMD_PREAD, 101, 23, 0);
	struct iocb *blocks[] = {&request->block, &request->block};
	struct io_event events[2];
	expect("io_submit", syscall(SYS_io_submit, context, 2, blocks), 2);
	expect("io_getevents", syscall(SYS_io_getevents, context, 2, 2, events, NULL), 2);
	request->thread = gettid();
	end(&events[0]);
	context_deinit(context);
	close_file("buffered", file);
}

/* What stands on a page that is in memory but not mapped. */
struct unmapped {
	struct iocb blocks[QUEUE_MAX];
	struct iocb *addresses[QUEUE_MAX];
	struct iovec vectors[3];
};

/* mapped: how many of the requests, the first ones, are not on the page; maps_addresses: nor are the addresses. */
static void submit_unmapped(aio_context_t context, struct unmapped *page, int count, int mapped, bool maps_addresses)
{
	struct iocb *at_hand[QUEUE_MAX];
	for (int i = 0; i < count; i++) {
		page->blocks[i] = requests[i].block;
		page->addresses[i] = at_hand[i] = i < mapped ? &requests[i].block : &page->blocks[i];
		requests[i].thread = gettid();
	}
	if (madvise(page, sizeof(*page), MADV_DONTNEED))
		err(1, "madvise");
	expect("io_submit", syscall(SYS_io_submit, context, count, maps_addresses ? at_hand : page->addresses), count);
	reap(context, count);
}

static void do_unmapped(void)
{
	make_file("buffered", DIRECT_BLOCKS * BLOCK_BYTES);
	make_file("requests", sizeof(struct unmapped));
	int file = open_file("buffered", O_RDONLY), direct = open_file("buffered", O_RDONLY | O_DIRECT);
	int requests_file = open_file("requests", O_RDWR);
	struct unmapped *page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED, requests_file, 0);
	if (page == MAP_FAILED)
		err(1, "mmap");
	aio_context_t context = context_init(QUEUE_MAX);
	for (int round = 0; round < 3; round++) {
		int count = round == 2 ? 1 : BATCH;
		for (int i = 0; i < count; i++)
			prepare(i, "read", "buffered", file, IOCB_CMD_PREAD, i * 1009, 101 + i, 0);
		if (count > 1) {
			struct request *vectored =
				prepare(7, "read", "buffered", file, IOCB_CMD_PREADV, 13, 31, IO_VECTORED);
			for (int i = 0; i < 3; i++)
				page->vectors[i] = (struct iovec){buffer + 7 * BLOCK_BYTES + 11 * i, i < 2 ? 11 : 9};
			vectored->block.aio_buf = (uintptr_t)page->vectors;
			vectored->block.aio_nbytes = 3;
			for (int i = 3; i < BATCH; i += 8)
				prepare(i, "read", "buffered", direct, IOCB_CMD_PREAD, i * BLOCK_BYTES, BLOCK_BYTES,
					IO_DIRECT);
		}
		submit_unmapped(context, page, count, round == 0 ? 5 : 0, round == 0);
	}
	context_deinit(context);
	munmap(page, sizeof(*page));
	close_file("requests", requests_file);
	close_file("buffered", direct);
	close_file("buffered", file);
}

/* Only one part of what this program can do; false if there is none of that name. */
static bool do_alone(const char *part)
{
	static const struct {
		const char *name;
		void (*act)(void);
	} parts[] = {
		{"left", do_left}, {"renewed", do_renewed}, {"idle", do_idle},	 {"unmapped", do_unmapped},
		{"wide", do_wide}, {"moved", do_moved},	    {"twice", do_twice}, {"replaced", do_replaced},
	};
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		if (strcmp(part, parts[i].name))
			continue;
		parts[i].act();
		return true;
	}
	return false;
}

int main(int argc, char **argv)
{
	if (argc != 2 && argc != 3)
		errx(2, "usage: aio DIRECTORY [reaped|left|renewed|idle|unmapped|wide|moved|twice|replaced]");
	told_init(argv[1]);
	if (posix_memalign((void **)&buffer, BLOCK_BYTES, QUEUE_MAX * BLOCK_BYTES))
		errx(1, "no memory");
	memset(buffer, 'x', QUEUE_MAX * BLOCK_BYTES);
	if (argc == 3 && do_alone(argv[2]))
		return 0;
	aio_context_t context = context_init(QUEUE_MAX);
	do_buffered(context);
	do_asked_times(context);
	do_direct(context);
	do_placed(context);
	do_failing(context);
	do_contexts();
	if (argc == 2)
		do_in_flight_at_exit();
	context_deinit(context);
	return 0;
}

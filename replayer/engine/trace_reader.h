/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns a trace file into an array of records in memory (bpf/trace_format.h), without reading it: it is mapped. Who goes
 * through all of it does so by blocks, and drops what is behind, as the trace may be larger than memory.
 */
#ifndef FLEXTRACE_TRACE_READER_H
#define FLEXTRACE_TRACE_READER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bpf/trace_format.h"

#ifndef TRACE_BLOCK_RECORDS /* tests make it small */
#define TRACE_BLOCK_RECORDS 8192
#endif

union record {
	__u8 kind;
	struct io_record io;
	struct fileop_record fileop;
	struct file_record file;
	struct text_record text;
	struct gap_record gap;
	struct resident_record resident;
	struct hole_record hole;
	struct block_data_record block_data;
	struct wake_record wake;
};

/* IO and FILEOP records share these places, so that order and time need not look at the kind. */
_Static_assert(offsetof(struct io_record, start_ns) == offsetof(struct fileop_record, start_ns), "start");
_Static_assert(offsetof(struct io_record, duration_ns) == offsetof(struct fileop_record, duration_ns), "duration");
_Static_assert(offsetof(struct io_record, thread) == offsetof(struct fileop_record, thread), "thread");
_Static_assert(offsetof(struct io_record, file) == offsetof(struct fileop_record, file), "file");
_Static_assert(offsetof(struct io_record, id) == offsetof(struct fileop_record, id), "id");

struct trace {
	const char *path;
	struct trace_header header; /* a copy: what the result says of it must not wait for storage */
	const void *map;
	size_t mapped_bytes;
	const union record *records;
	uint64_t count; /* of records */
	const atomic_bool *stop; /* who goes through all of it looks at this with each block */
};

/* How many records of a kind there are, at most: the counts of a trace that was not closed cleanly are not final. */
static inline uint64_t trace_count_of(const struct trace *trace, enum record_kind kind)
{
	return trace->header.flags & TRACE_INCOMPLETE ? UINT64_MAX : trace->header.count[kind];
}

static inline bool record_is_operation(const union record *record)
{
	return record->kind == RECORD_IO || record->kind == RECORD_FILEOP;
}

/*
 * How many bytes a replay asks for. What sendfile, splice and copy_file_range moved was bounded by their other side (a
 * pipe, a socket), which is not replayed: a read or write of all that they asked for would move more. So would a write
 * that came up short for lack of space, by a limit or by a signal, after which the application has written the rest.
 */
static inline uint32_t io_replay_bytes(const struct io_record *io)
{
	if (io->source != SOURCE_SPLICE && (io->op != IO_WRITE || io->result >= (int64_t)io->asked_bytes))
		return io->asked_bytes;
	return io->result > 0 ? (uint32_t)io->result : 0;
}

/* Sum that stays at the largest number: damaged records hold any number. */
static inline uint64_t add_saturating(uint64_t a, uint64_t b)
{
	return a + b < a ? UINT64_MAX : a + b;
}

static inline uint64_t record_end_ns(const union record *record)
{
	return add_saturating(record->io.start_ns, record->io.duration_ns);
}

/* Whether something had ended before a time: at it only after a positive duration (docs/decisions/0002-order.md). */
static inline bool ended_before(uint64_t start_ns, uint64_t end_ns, uint64_t time_ns)
{
	return end_ns < time_ns || (end_ns == time_ns && start_ns < time_ns);
}

/*
 * Maps a trace. A file that is not a trace, of a newer major version, or shorter than its header says is refused with a
 * message and a negative errno; one that was not closed cleanly (TRACE_INCOMPLETE) is taken up to its last whole
 * record. What cannot be read of it later sets *stop (trace_loss.h).
 */
int trace_open(struct trace *trace, const char *path, atomic_bool *stop);
void trace_close(struct trace *trace);

/* -EINTR with a message when a stop was asked for, or the trace was lost, before the replay has begun. */
int trace_check_stop(const struct trace *trace);

/* Gives the memory of these records back; they are still there for who reads them again. */
void trace_drop(const struct trace *trace, uint64_t first, uint64_t count);

/* On the way through all records, at each: drops the block that is behind, and then says what trace_check_stop() does. */
int trace_pass(const struct trace *trace, uint64_t number);

#endif

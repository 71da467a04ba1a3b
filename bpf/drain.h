/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FLEXTRACE_DRAIN_H
#define FLEXTRACE_DRAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device_filter.h"
#include "names.h"
#include "ring_event.h"
#include "writer.h"

struct ring_buffer; /* of libbpf */

/* A record that waits for its turn in the order of ends. */
struct pending {
	uint64_t end_ns;
	uint64_t sequence; /* arrival; keeps the order of equal ends */
	char *path; /* of a FILE, or the existing name of a FILEOP on names; NULL = none */
	char *new_path; /* the name that a FILEOP makes */
	uint32_t viewer_process; /* of a FILE: whose view the path is */
	bool other_root; /* of a FILEOP on names: whoever named them has not the root of the recorder */
	union {
		uint8_t kind;
		struct io_record io;
		struct fileop_record fileop;
		struct file_record file;
		struct task_record task;
		struct block_record block;
		struct block_data_record block_data;
		struct wake_record wake;
	} record;
};

/* Names that a thread's call on names has announced; they come right before its record, through the same ring. */
struct announced {
	uint32_t thread;
	bool other_root;
	bool incomplete; /* there was no memory for a name: its record counts as lost */
	uint64_t time_ns; /* end of the call */
	char *directory, *path, *new_path;
};

/* The ring of one CPU. */
struct drained_ring {
	struct drain *drain;
	struct announced announced; /* last */
};

struct drain {
	struct ring_buffer *rings;
	struct drained_ring *ring_of_cpu;
	int ring_count;
	struct writer *writer;
	struct names names;
	struct pending *pending;
	size_t pending_begin, pending_end, pending_room;
	uint64_t sequence;
	uint64_t written_until_ns; /* records up to this end are in the file */
	uint64_t late_count; /* records that arrived after their turn; the file is not in order there */
	uint64_t ends_unseen; /* block requests of which only a later use of their memory told that they had ended */
	uint32_t name_ids; /* file ids given out here, for paths that the kernel side never saw */
	bool has_links; /* a file was given another name: from then on it is said which one is meant */
	uint64_t round_began_ns; /* of the round before */
	uint64_t passed_ns; /* what ended until then is written */
	uint64_t
		lost_here[TRACE_KINDS_MAX]; /* events dropped for lack of memory, by the kind of record they would be */
	/* Sees every record before it is written, and may complete it. */
	void (*observe)(void *observer, struct pending *pending);
	/* Sees every FILE record as soon as it has come with its path. */
	void (*meet)(void *observer, const struct pending *file);
	void *observer;
	/* Filters of the user's for names, which the kernel side does not judge. */
	const char *path_prefix; /* NULL = none */
	struct device_filter *device_filter; /* NULL = none */
	uint64_t filtered_count; /* operations that they left out */
	uint64_t lookup_count; /* names and files that were looked up, or are to be */
	uint64_t event_count, event_bytes; /* what came through the rings, without their headers of 8 bytes */
	struct wake_record wake; /* of a call whose record comes next; kind 0 = none */
};

/* rings[i] is the descriptor of the ring of one CPU. 0 or a negative errno. */
int drain_init(struct drain *drain, const int *rings, int ring_count, struct writer *writer);
/* A descriptor of epoll, which has an event when a program wakes the recorder, and another one only the next time. */
int drain_descriptor(const struct drain *drain);
/* Takes everything out of the rings into memory, to make room in them. 0 or a negative errno. */
int drain_take(struct drain *drain);
/* Takes everything out of the rings and writes what can no longer be overtaken. 0 or a negative errno. */
int drain_round(struct drain *drain);
/* The last round: writes everything. Call it when nothing can produce any more. */
int drain_finish(struct drain *drain);
void drain_deinit(struct drain *drain);

#endif /* FLEXTRACE_DRAIN_H */

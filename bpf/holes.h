/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FLEXTRACE_HOLES_H
#define FLEXTRACE_HOLES_H

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "seen_file.h"
#include "writer.h"

enum {
	HOLES_OF_FILE_MAX = 4096, /* that are noted; where there are more, the largest */
	HOLES_FOUND_MAX = 1 << 18, /* of one file; what comes behind them is taken for data */
	HOLES_MAX = 1 << 20, /* of all files; 64 MiB of the trace */
	HOLED_FILES_MAX = 1 << 16, /* that wait to be looked at, and with holes to be written; a power of two */
};

struct hole {
	uint64_t offset, end;
};

/* A file that was there before the recording, and what was found in it. */
struct holed_file {
	struct seen_file seen;
	uint64_t changed_ns; /* start of the first operation since then that may have made a hole of its data */
	/* By the thread that looks. */
	uint64_t looked_ns; /* when it was through with it */
	struct hole *holes;
	uint32_t count;
	bool cut; /* it has holes that are not among them */
};

struct holes {
	pthread_t looker;
	sem_t wanted; /* counts files to look at */
	atomic_bool stop;
	struct holed_file *files; /* a ring: [taken, looked) are looked at, [looked, noted) not yet */
	uint32_t taken;
	_Atomic uint32_t looked;
	uint32_t noted;
	struct hole *found; /* of the file that is looked at */
	struct holed_file *held; /* with holes, until it is known that these were there at first sight */
	uint32_t held_count;
	uint32_t holes_held; /* in all of them */
	uint64_t file_count, hole_count, hole_bytes; /* noted in the trace */
	uint64_t cut_count; /* files of which holes are not noted */
	uint64_t unseen_count; /* files that were not looked at */
};

int holes_init(struct holes *holes);
/* Takes note of a file at its first sight. */
void holes_note(struct holes *holes, const struct file_record *record, const char *path, pid_t viewer);
/* An operation on a file, of any if that is 0, may have made a hole of data between these times. */
void holes_doubt(struct holes *holes, uint32_t file, uint64_t start_ns, uint64_t end_ns);
/* Writes the holes of which it is known that they are right. All that ended until passed_ns was told to holes_doubt(). */
void holes_round(struct holes *holes, struct writer *writer, uint64_t passed_ns);
/* The last round: waits for files that are still to be looked at. */
void holes_finish(struct holes *holes, struct writer *writer);
/* {"files": ..., "bytes": ..., "files_cut": ..., "files_not_looked_at": ...} */
void holes_put(const struct holes *holes, FILE *json);
/* One line about what is not noted; nothing if all is. */
void holes_say(const struct holes *holes, FILE *stream);
void holes_deinit(struct holes *holes);

#endif /* FLEXTRACE_HOLES_H */

/* SPDX-License-Identifier: Apache-2.0 */
/* Turns ids of files into what is known of each while the records of a trace are gone through. */
#ifndef FLEXTRACE_FILE_LIST_H
#define FLEXTRACE_FILE_LIST_H

#include "replayer/engine/file_paths.h"
#include "replayer/engine/file_room.h"

/* What is known of a file at one moment of the run-through. */
struct moment {
	uint64_t size_bytes;
	uint64_t recorded_bytes; /* size_bytes, before any operation */
	struct room room;
	uint64_t path; /* hash; 0 = not known */
	uint64_t run_end; /* of its last request */
	uint64_t run_bytes; /* of the requests up to there that follow each other */
	uint32_t opens;
	uint32_t links; /* names beside its own, by recorded links */
	uint32_t thread; /* the first that had to do with it */
	bool made; /* by the trace */
	bool gone; /* removed or renamed since */
	bool unlinked;
	bool resized; /* truncated: a read beyond the end says nothing about the size at the start */
};

/* Files by id, as far as they have come up: one list from 0, one from FIRST_NAME_ID. */
struct file_list {
	struct file *files;
	struct moment *moments;
	struct path_hash *paths;
	uint32_t count;
	uint32_t room;
};

/* Has the list reach to an index. 0 or -ENOMEM. */
int list_extend(struct file_list *list, uint32_t index);
void list_free(struct file_list *list);

#endif

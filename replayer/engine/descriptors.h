/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns files, by their index in the table, into open descriptors and current names while a replay runs.
 *
 * One descriptor per file and class (direct, sync) is kept and used by all threads; a recorded open that finds one
 * there opens another one, which only waits for its close. A descriptor that is in use by another thread at its close
 * is closed when that use ends, as the kernel does with the last reference.
 */
#ifndef FLEXTRACE_DESCRIPTORS_H
#define FLEXTRACE_DESCRIPTORS_H

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "replayer/engine/files.h"
#include "replayer/engine/image.h"

struct open_file {
	/* Descriptor + 1 in the high half; users in the low half, whose highest bit says: close after the last use. */
	_Atomic uint64_t slots[DESCRIPTOR_CLASSES];
	int *extra; /* further descriptors of recorded opens */
	uint32_t extra_count;
	uint32_t extra_capacity;
	uint32_t opens; /* recorded opens that were not closed yet */
	uint32_t name; /* id of the place it has in the directory; 0 = none */
	uint32_t links; /* first of further places that it has by links; 0 = none */
	uint32_t next_link; /* of the file that has this place by a link: the place after this one */
	bool existed; /* was made or laid out in this pass */
	bool pinned; /* never closed during a pass: used without counting */
	bool moving; /* its name is being changed: who wants to go by it waits */
	uint32_t name_users; /* calls that go by its name: who wants to change it waits */
	atomic_bool touched; /* since the search for one to close came by */
};

struct descriptors {
	const struct file_table *table;
	const struct image *image;
	struct open_file *files;
	uint32_t *owners; /* by name: the file that has it; 0 = none */
	uint32_t *names; /* by path: the name that a file got there last; 0 = none */
	uint32_t budget; /* descriptors that may be open at one time */
	uint32_t open_count;
	uint32_t hand; /* where the search for one to close goes on */
	uint32_t sector_bytes; /* in which direct I/O to the image's files works */
	atomic_bool direct_refused; /* the file system has no O_DIRECT: opened without */
	pthread_mutex_t lock;
	pthread_cond_t settled; /* a name is not being changed, or not used, any more */
};

int descriptors_init(struct descriptors *descriptors, const struct file_table *table, const struct image *image);
/* Leaves so many of the budget to others. */
void descriptors_reserve(struct descriptors *descriptors, uint32_t count);
void descriptors_destroy(struct descriptors *descriptors);

/* State at the start of a pass: names as laid out, and descriptors open that no recorded open will bring. */
void descriptors_start_pass(struct descriptors *descriptors);
void descriptors_close_all(struct descriptors *descriptors);

/* In which direct I/O to a file works. */
static inline uint32_t descriptors_sector_bytes(const struct descriptors *descriptors, uint32_t id)
{
	return descriptors->table->files[id].on_device ? descriptors->image->target->block_bytes
						       : descriptors->sector_bytes;
}

/* A descriptor, -ESTALE when the file is gone, or the -errno of its open. Give it back by descriptors_release(). */
int descriptors_acquire(struct descriptors *descriptors, uint32_t id, uint8_t class);
void descriptors_release(struct descriptors *descriptors, uint32_t id, uint8_t class);

enum name_state { NAME_THERE, NAME_GONE, NAME_NEVER };

/*
 * The kernel changes a name before this table does. So a call that goes by a name is made between these two, and one that
 * changes a name within a move; a descriptor that is open is used meanwhile.
 */
void descriptors_use_name(struct descriptors *descriptors, uint32_t id);
void descriptors_used_name(struct descriptors *descriptors, uint32_t id);

struct move {
	uint32_t file;
	/*
	 * What a rename to the path of a file has to give as new name, so that it replaces what it replaced when it was
	 * recorded, and does not leave it behind, filling the disk; and who has that name, or would.
	 */
	uint32_t name;
	uint32_t other;
};

/* Of a file to the path of `target`, or to none (0). */
struct move descriptors_begin_move(struct descriptors *descriptors, uint32_t id, uint32_t target);
void descriptors_end_move(struct descriptors *descriptors, struct move move);

/* How a descriptor of a class is opened. */
static inline int class_open_flags(uint8_t class)
{
	return (class & CLASS_DIRECT ? O_DIRECT : 0) | (class & CLASS_SYNC ? O_SYNC : 0) |
	       (class & CLASS_DSYNC ? O_DSYNC : 0);
}

/* Opens a file of the replay, without O_DIRECT where the file system refuses that. A descriptor or -errno. */
int descriptors_open(struct descriptors *descriptors, int directory, const char *name, int flags);

/* The name of a file now, if it has one. */
enum name_state descriptors_name(struct descriptors *descriptors, uint32_t id, char name[static IMAGE_NAME_BYTES]);

/*
 * The place in the directory that a file has by a name; where that is not known (0), or another's by now, by the one that it
 * has. 0 = none.
 */
uint32_t descriptors_place(struct descriptors *descriptors, uint32_t id, uint32_t name);

/* Takes over the descriptor of a recorded open. */
void descriptors_opened(struct descriptors *descriptors, uint32_t id, uint8_t class, int descriptor);

/*
 * What a recorded close has to close: fills `closing` and returns how many; 0 when it is left to a thread that still
 * uses it; -ENOENT when there is none; -EBUSY when it stays open for others, or for later uses of a file without a name.
 */
int descriptors_closing(struct descriptors *descriptors, uint32_t id, int closing[static DESCRIPTOR_CLASSES]);

/* Before a file loses a name, so that it is there for its later uses; and after an unlink. place: of that name. */
void descriptors_keep(struct descriptors *descriptors, uint32_t id);
void descriptors_unlinked(struct descriptors *descriptors, uint32_t id, uint32_t place);
void descriptors_renamed(struct descriptors *descriptors, uint32_t id, uint32_t place, uint32_t name);
void descriptors_exchanged(struct descriptors *descriptors, uint32_t id, uint32_t place, uint32_t name);
void descriptors_linked(struct descriptors *descriptors, uint32_t id, uint32_t name);
void descriptors_created(struct descriptors *descriptors, uint32_t id);

/* What descriptors.c and descriptor_names.c have from each other; under lock. */
void descriptors_await_move(struct descriptors *descriptors, uint32_t id);
/* From now on a file goes by this name, and whoever had it has it no more. */
void descriptors_give_name(struct descriptors *descriptors, uint32_t id, uint32_t name);
void descriptors_close_slots(struct descriptors *descriptors, struct open_file *open_file);

#endif

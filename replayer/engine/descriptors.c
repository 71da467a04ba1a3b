// SPDX-License-Identifier: Apache-2.0
// Turns file ids into open descriptors and current names while a replay runs.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "replayer/engine/descriptors.h"
#include "replayer/engine/direct_sectors.h"
#include "replayer/engine/message.h"

#define SLOT_CLOSING (1ull << 31)
#define SLOT_USERS (SLOT_CLOSING - 1)

enum {
	DESCRIPTORS_RESERVED = 64, /* for what is not a file of the image */
	DESCRIPTORS_MAX = 1 << 20,
	DESCRIPTORS_MIN = 16,
};

static int slot_descriptor(uint64_t slot)
{
	return (int)(slot >> 32) - 1;
}

int descriptors_init(struct descriptors *descriptors, const struct file_table *table, const struct image *image)
{
	struct rlimit limit;

	*descriptors = (struct descriptors){
		.table = table, .image = image, .lock = PTHREAD_MUTEX_INITIALIZER, .settled = PTHREAD_COND_INITIALIZER};
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
		getrlimit(RLIMIT_NOFILE, &limit);
	}
	descriptors->budget = limit.rlim_cur < DESCRIPTORS_MAX ? (uint32_t)limit.rlim_cur : DESCRIPTORS_MAX;
	descriptors->budget = descriptors->budget > DESCRIPTORS_RESERVED + DESCRIPTORS_MIN
				      ? descriptors->budget - DESCRIPTORS_RESERVED
				      : DESCRIPTORS_MIN;
	descriptors->sector_bytes =
		image->path ? direct_sector_bytes(image->directory, IMAGE_MARKER) : SECTOR_BYTES_MIN;
	descriptors->files = calloc(table->count, sizeof(*descriptors->files));
	descriptors->owners = calloc(table->count, sizeof(*descriptors->owners));
	descriptors->names = calloc(table->count, sizeof(*descriptors->names));
	if (!descriptors->files || !descriptors->owners || !descriptors->names) {
		complain("no memory for the descriptors of %u files", table->count - 1);
		return -ENOMEM;
	}
	return 0;
}

void descriptors_reserve(struct descriptors *descriptors, uint32_t count)
{
	uint32_t left = descriptors->budget > count ? descriptors->budget - count : 0;

	descriptors->budget = left > DESCRIPTORS_MIN ? left : DESCRIPTORS_MIN;
}

void descriptors_destroy(struct descriptors *descriptors)
{
	if (descriptors->files)
		descriptors_close_all(descriptors);
	for (uint32_t id = 0; descriptors->files && id < descriptors->table->count; id++)
		free(descriptors->files[id].extra);
	free(descriptors->files);
	free(descriptors->owners);
	free(descriptors->names);
}

/* Takes a descriptor out of its slot, or marks it when it is in use. Under lock. Returns it, or -1. */
static int take_slot(struct descriptors *descriptors, _Atomic uint64_t *slot)
{
	uint64_t value = atomic_load(slot);

	while (value >> 32) {
		uint64_t next = value & SLOT_USERS ? value | SLOT_CLOSING : 0;

		if (atomic_compare_exchange_weak(slot, &value, next)) {
			if (next)
				return -1;
			descriptors->open_count--;
			return slot_descriptor(value);
		}
	}
	return -1;
}

void descriptors_close_slots(struct descriptors *descriptors, struct open_file *open_file)
{
	for (int class = 0; class < DESCRIPTOR_CLASSES; class ++) {
		int descriptor = take_slot(descriptors, &open_file->slots[class]);

		if (descriptor >= 0)
			close(descriptor);
	}
}

static void close_extra(struct descriptors *descriptors, struct open_file *open_file)
{
	while (open_file->extra_count) {
		close(open_file->extra[--open_file->extra_count]);
		descriptors->open_count--;
	}
}

/*
 * Closes a descriptor that was not used since the last round (the clock algorithm, near to least recently used) and
 * that can be opened again by name. Under lock.
 */
static void make_room(struct descriptors *descriptors)
{
	for (uint64_t step = 0; step < 2ull * descriptors->table->count; step++) {
		descriptors->hand = (descriptors->hand + 1) % descriptors->table->count;
		struct open_file *open_file = &descriptors->files[descriptors->hand];
		uint32_t before = descriptors->open_count;

		close_extra(descriptors, open_file);
		if (!open_file->pinned && open_file->name && !open_file->moving &&
		    !atomic_exchange(&open_file->touched, false)) {
			for (int class = 0; class < DESCRIPTOR_CLASSES; class ++) {
				uint64_t idle = atomic_load(&open_file->slots[class]);

				if (!idle || idle & (SLOT_USERS | SLOT_CLOSING) ||
				    !atomic_compare_exchange_strong(&open_file->slots[class], &idle, 0))
					continue;
				close(slot_descriptor(idle));
				descriptors->open_count--;
			}
		}
		if (descriptors->open_count < before)
			return;
	}
}

int descriptors_open(struct descriptors *descriptors, int directory, const char *name, int flags)
{
	int descriptor = openat(directory, name, flags, 0600);

	if (descriptor < 0 && errno == EINVAL && flags & O_DIRECT) {
		atomic_store(&descriptors->direct_refused, true);
		descriptor = openat(directory, name, flags & ~O_DIRECT, 0600);
	}
	return descriptor < 0 ? -errno : descriptor;
}

/* Another descriptor, of another class, of a file that has lost its name but is still open. Under lock. */
static int open_again(struct descriptors *descriptors, const struct open_file *open_file, int flags)
{
	for (int class = 0; class < DESCRIPTOR_CLASSES; class ++) {
		int held = slot_descriptor(atomic_load(&open_file->slots[class]));
		char path[32];

		if (held < 0)
			continue;
		snprintf(path, sizeof(path), "/proc/self/fd/%d", held);
		int descriptor = descriptors_open(descriptors, AT_FDCWD, path, flags & ~O_NOFOLLOW);
		descriptors->open_count += descriptor >= 0;
		return descriptor;
	}
	return -ESTALE;
}

/* Under lock. */
static int open_named(struct descriptors *descriptors, uint32_t id, uint8_t class)
{
	struct open_file *open_file = &descriptors->files[id];
	/* Without O_NONBLOCK, with which io_uring fails what would block on storage that cannot tell (Linux 6.1, dm-crypt). */
	int flags = O_RDWR | O_NOFOLLOW | O_CLOEXEC | class_open_flags(class);
	char name[IMAGE_NAME_BYTES];

	if (descriptors->table->files[id].on_device) {
		int device = target_reopen(descriptors->image->target, flags);

		descriptors->open_count += device >= 0;
		return device;
	}
	if (!open_file->name && (open_file->existed || descriptors->owners[id]))
		return open_again(descriptors, open_file, flags);
	/* Its creation was not recorded. */
	if (!open_file->name)
		flags |= O_CREAT;
	image_name(name, false, open_file->name ? open_file->name : id);
	if (descriptors->open_count >= descriptors->budget)
		make_room(descriptors);
	int descriptor = descriptors_open(descriptors, descriptors->image->directory, name, flags);
	if (descriptor < 0)
		return descriptor;
	if (!open_file->name)
		descriptors_give_name(descriptors, id, id);
	open_file->existed = true;
	descriptors->open_count++;
	return descriptor;
}

/* Opens what is not open yet. Under lock. */
static int fill_slot(struct descriptors *descriptors, uint32_t id, uint8_t class)
{
	_Atomic uint64_t *slot = &descriptors->files[id].slots[class];
	int descriptor = slot_descriptor(atomic_load(slot));

	if (descriptor >= 0)
		return descriptor;
	descriptor = open_named(descriptors, id, class);
	if (descriptor >= 0)
		atomic_fetch_add(slot, (uint64_t)(uint32_t)(descriptor + 1) << 32);
	return descriptor;
}

static int acquire_slowly(struct descriptors *descriptors, uint32_t id, uint8_t class)
{
	pthread_mutex_lock(&descriptors->lock);
	descriptors_await_move(descriptors, id);
	int descriptor = fill_slot(descriptors, id, class);
	if (descriptor >= 0)
		atomic_fetch_add(&descriptors->files[id].slots[class], 1);
	pthread_mutex_unlock(&descriptors->lock);
	return descriptor;
}

int descriptors_acquire(struct descriptors *descriptors, uint32_t id, uint8_t class)
{
	struct open_file *open_file = &descriptors->files[id];
	_Atomic uint64_t *slot = &open_file->slots[class];

	if (open_file->pinned) {
		int descriptor = slot_descriptor(atomic_load_explicit(slot, memory_order_relaxed));

		if (descriptor >= 0)
			return descriptor;
	} else {
		int descriptor = slot_descriptor(atomic_fetch_add(slot, 1));

		atomic_store_explicit(&open_file->touched, true, memory_order_relaxed);
		if (descriptor >= 0)
			return descriptor;
		atomic_fetch_sub(slot, 1);
	}
	return acquire_slowly(descriptors, id, class);
}

void descriptors_release(struct descriptors *descriptors, uint32_t id, uint8_t class)
{
	struct open_file *open_file = &descriptors->files[id];
	_Atomic uint64_t *slot = &open_file->slots[class];

	if (open_file->pinned)
		return;
	uint64_t value = atomic_fetch_sub(slot, 1) - 1;
	if (!(value & SLOT_CLOSING) || value & SLOT_USERS)
		return;
	pthread_mutex_lock(&descriptors->lock);
	value = atomic_load(slot);
	int descriptor = value & SLOT_CLOSING ? take_slot(descriptors, slot) : -1;
	pthread_mutex_unlock(&descriptors->lock);
	if (descriptor >= 0)
		close(descriptor);
}

void descriptors_start_pass(struct descriptors *descriptors)
{
	for (uint32_t id = 1; id < descriptors->table->count; id++)
		descriptors->names[id] = 0;
	for (uint32_t id = 1; id < descriptors->table->count; id++) {
		const struct file *file = &descriptors->table->files[id];
		struct open_file *open_file = &descriptors->files[id];

		open_file->name = file->laid_out || file->on_device ? id : 0;
		open_file->links = 0;
		open_file->existed = open_file->name != 0;
		open_file->opens = file->opens_before;
		descriptors->owners[id] = open_file->name;
		if (!descriptors->names[file->path])
			descriptors->names[file->path] = open_file->name;
	}
	/* A quarter of the descriptors stays free for recorded opens. */
	for (uint32_t id = 1; id < descriptors->table->count; id++) {
		const struct file *file = &descriptors->table->files[id];
		struct open_file *open_file = &descriptors->files[id];

		if ((!file->laid_out && !file->on_device) || file->directory)
			continue;
		bool complete = file->classes != 0;
		for (uint8_t class = 0; class < DESCRIPTOR_CLASSES; class ++) {
			if (!(file->classes & (1u << class)))
				continue;
			if (descriptors->open_count >= descriptors->budget - descriptors->budget / 4)
				return;
			bool opened = descriptors_acquire(descriptors, id, class) >= 0;

			if (opened)
				descriptors_release(descriptors, id, class);
			complete &= opened;
		}
		open_file->pinned = complete && !file->closed && !file->renamed;
	}
}

void descriptors_close_all(struct descriptors *descriptors)
{
	for (uint32_t id = 1; id < descriptors->table->count; id++) {
		struct open_file *open_file = &descriptors->files[id];

		open_file->pinned = false;
		for (int class = 0; class < DESCRIPTOR_CLASSES; class ++)
			atomic_fetch_and(&open_file->slots[class], ~(SLOT_CLOSING | SLOT_USERS));
		descriptors_close_slots(descriptors, open_file);
		close_extra(descriptors, open_file);
	}
}

void descriptors_opened(struct descriptors *descriptors, uint32_t id, uint8_t class, int descriptor)
{
	struct open_file *open_file = &descriptors->files[id];

	pthread_mutex_lock(&descriptors->lock);
	if (!open_file->name) {
		/* What had the name before is another file, to which a later use does not mean to go. */
		if (!open_file->opens)
			descriptors_close_slots(descriptors, open_file);
		descriptors_give_name(descriptors, id, id);
	}
	open_file->opens++;
	open_file->existed = true;
	if (descriptors->open_count >= descriptors->budget)
		make_room(descriptors);
	descriptors->open_count++;
	if (!descriptors->table->files[id].directory && !(atomic_load(&open_file->slots[class]) >> 32)) {
		atomic_fetch_add(&open_file->slots[class], (uint64_t)(uint32_t)(descriptor + 1) << 32);
		descriptor = -1;
	} else if (open_file->extra_count == open_file->extra_capacity) {
		uint32_t capacity = open_file->extra_capacity ? 2 * open_file->extra_capacity : 4;
		int *extra = realloc(open_file->extra, capacity * sizeof(*extra));

		if (extra) {
			open_file->extra = extra;
			open_file->extra_capacity = capacity;
		}
	}
	if (descriptor >= 0 && open_file->extra_count < open_file->extra_capacity) {
		open_file->extra[open_file->extra_count++] = descriptor;
		descriptor = -1;
	}
	if (descriptor >= 0)
		descriptors->open_count--;
	pthread_mutex_unlock(&descriptors->lock);
	if (descriptor >= 0)
		close(descriptor); /* no memory to remember it */
}

int descriptors_closing(struct descriptors *descriptors, uint32_t id, int closing[static DESCRIPTOR_CLASSES])
{
	struct open_file *open_file = &descriptors->files[id];
	int count = 0;

	pthread_mutex_lock(&descriptors->lock);
	if (!open_file->opens) {
		count = -ENOENT;
	} else if (open_file->extra_count) {
		open_file->opens--;
		closing[count++] = open_file->extra[--open_file->extra_count];
		descriptors->open_count--;
	} else if (--open_file->opens || (!open_file->name && descriptors->table->files[id].used_after_unlink)) {
		count = -EBUSY; /* also the last one to a file without a name, which could not be opened again */
	} else {
		for (int class = 0; class < DESCRIPTOR_CLASSES; class ++) {
			int descriptor = take_slot(descriptors, &open_file->slots[class]);

			if (descriptor >= 0)
				closing[count++] = descriptor;
		}
	}
	pthread_mutex_unlock(&descriptors->lock);
	return count;
}

void descriptors_keep(struct descriptors *descriptors, uint32_t id)
{
	const struct file *file = &descriptors->table->files[id];

	pthread_mutex_lock(&descriptors->lock);
	for (uint8_t class = 0; class < DESCRIPTOR_CLASSES && file->used_after_unlink; class ++) {
		if (file->classes & (1u << class))
			fill_slot(descriptors, id, class);
	}
	pthread_mutex_unlock(&descriptors->lock);
}

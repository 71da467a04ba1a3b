// SPDX-License-Identifier: Apache-2.0
// Turns file ids into the names that they have now, while a replay runs and changes them.
#include <string.h>

#include "replayer/engine/descriptors.h"

/* Takes a name from whoever has it. Under lock. */
static void take_name(struct descriptors *descriptors, uint32_t name)
{
	struct open_file *files = descriptors->files, *owner = &files[descriptors->owners[name]];
	uint32_t *place = &owner->links;

	if (!descriptors->owners[name])
		return;
	descriptors->owners[name] = 0;
	if (owner->name == name) {
		owner->name = owner->links;
		name = owner->links;
	}
	while (*place && *place != name)
		place = &files[*place].next_link;
	if (*place)
		*place = files[name].next_link;
}

/* Under lock. */
static void note_owner(struct descriptors *descriptors, uint32_t id, uint32_t name)
{
	descriptors->owners[name] = id;
	descriptors->names[descriptors->table->files[name].path] = name;
}

void descriptors_give_name(struct descriptors *descriptors, uint32_t id, uint32_t name)
{
	take_name(descriptors, name);
	if (descriptors->files[id].name)
		descriptors->owners[descriptors->files[id].name] = 0;
	descriptors->files[id].name = name;
	note_owner(descriptors, id, name);
}

/* Besides those that it has. Under lock. */
static void add_name(struct descriptors *descriptors, uint32_t id, uint32_t name)
{
	take_name(descriptors, name);
	descriptors->files[name].next_link = descriptors->files[id].links;
	descriptors->files[id].links = name;
	note_owner(descriptors, id, name);
}

/* In the place of one that it has. Under lock. */
static void change_name(struct descriptors *descriptors, uint32_t id, uint32_t place, uint32_t name)
{
	if (descriptors->files[id].name == place) {
		descriptors_give_name(descriptors, id, name);
		return;
	}
	take_name(descriptors, place);
	add_name(descriptors, id, name);
}

void descriptors_use_name(struct descriptors *descriptors, uint32_t id)
{
	pthread_mutex_lock(&descriptors->lock);
	descriptors_await_move(descriptors, id);
	descriptors->files[id].name_users++;
	pthread_mutex_unlock(&descriptors->lock);
}

void descriptors_used_name(struct descriptors *descriptors, uint32_t id)
{
	pthread_mutex_lock(&descriptors->lock);
	if (!--descriptors->files[id].name_users)
		pthread_cond_broadcast(&descriptors->settled);
	pthread_mutex_unlock(&descriptors->lock);
}

/* An open descriptor would do meanwhile, but there is none. */
void descriptors_await_move(struct descriptors *descriptors, uint32_t id)
{
	while (descriptors->files[id].moving)
		pthread_cond_wait(&descriptors->settled, &descriptors->lock);
}

static bool is_busy(const struct open_file *open_file)
{
	return open_file->moving || open_file->name_users;
}

struct move descriptors_begin_move(struct descriptors *descriptors, uint32_t id, uint32_t target)
{
	struct open_file *files = descriptors->files;
	struct move move = {.file = id};

	pthread_mutex_lock(&descriptors->lock);
	while (true) {
		uint32_t name = descriptors->names[descriptors->table->files[target].path];

		move.name = name ? name : target;
		move.other = descriptors->owners[move.name] ? descriptors->owners[move.name] : move.name;
		if (!is_busy(&files[id]) && !is_busy(&files[move.other]))
			break;
		pthread_cond_wait(&descriptors->settled, &descriptors->lock);
	}
	files[id].moving = true;
	files[move.other].moving = move.other != 0; /* a removal has none */
	pthread_mutex_unlock(&descriptors->lock);
	return move;
}

void descriptors_end_move(struct descriptors *descriptors, struct move move)
{
	pthread_mutex_lock(&descriptors->lock);
	descriptors->files[move.file].moving = false;
	descriptors->files[move.other].moving = false;
	pthread_cond_broadcast(&descriptors->settled);
	pthread_mutex_unlock(&descriptors->lock);
}

enum name_state descriptors_name(struct descriptors *descriptors, uint32_t id, char name[static IMAGE_NAME_BYTES])
{
	pthread_mutex_lock(&descriptors->lock);
	uint32_t place = descriptors->files[id].name;
	bool existed = descriptors->files[id].existed;
	pthread_mutex_unlock(&descriptors->lock);
	if (!place)
		return existed ? NAME_GONE : NAME_NEVER;
	image_name(name, descriptors->table->files[id].directory, place);
	return NAME_THERE;
}

uint32_t descriptors_place(struct descriptors *descriptors, uint32_t id, uint32_t name)
{
	pthread_mutex_lock(&descriptors->lock);
	/* A rename gives a file the place of what it replaces (struct move). */
	const uint32_t places[] = {name, descriptors->names[descriptors->table->files[name].path]};
	uint32_t place = descriptors->files[id].name;
	for (int i = 0; i < 2 && name; i++) {
		if (descriptors->owners[places[i]] == id) {
			place = places[i];
			break;
		}
	}
	pthread_mutex_unlock(&descriptors->lock);
	return place;
}

/* Takes one name from a file. Under lock. */
static void lose_name(struct descriptors *descriptors, uint32_t id, uint32_t name)
{
	struct open_file *open_file = &descriptors->files[id];

	take_name(descriptors, name);
	if (!open_file->name && !open_file->opens && !descriptors->table->files[id].used_after_unlink)
		descriptors_close_slots(descriptors, open_file);
}

void descriptors_unlinked(struct descriptors *descriptors, uint32_t id, uint32_t place)
{
	pthread_mutex_lock(&descriptors->lock);
	lose_name(descriptors, id, place);
	pthread_mutex_unlock(&descriptors->lock);
}

void descriptors_linked(struct descriptors *descriptors, uint32_t id, uint32_t name)
{
	pthread_mutex_lock(&descriptors->lock);
	add_name(descriptors, id, name);
	pthread_mutex_unlock(&descriptors->lock);
}

/*
 * What lies in a directory has other paths when that is renamed, and what comes to those that it had must not take its place.
 * Nor does what comes to its new ones, of which not all are known: it stays until the end of the pass. Under lock.
 */
static void forget_paths_below(struct descriptors *descriptors, uint32_t id)
{
	if (descriptors->table->files[id].directory)
		memset(descriptors->names, 0, descriptors->table->count * sizeof(*descriptors->names));
}

/* To two names of one file the kernel does nothing, here and below. */
void descriptors_exchanged(struct descriptors *descriptors, uint32_t id, uint32_t place, uint32_t name)
{
	pthread_mutex_lock(&descriptors->lock);
	uint32_t other = descriptors->owners[name];

	forget_paths_below(descriptors, id);
	if (other != id)
		change_name(descriptors, id, place, name);
	if (other && other != id && descriptors->files[other].name)
		add_name(descriptors, other, place);
	else if (other && other != id)
		descriptors_give_name(descriptors, other, place);
	pthread_mutex_unlock(&descriptors->lock);
}

void descriptors_renamed(struct descriptors *descriptors, uint32_t id, uint32_t place, uint32_t name)
{
	pthread_mutex_lock(&descriptors->lock);
	forget_paths_below(descriptors, id);
	uint32_t victim = descriptors->owners[name];
	if (victim && victim != id)
		lose_name(descriptors, victim, name);
	if (victim != id)
		change_name(descriptors, id, place, name);
	pthread_mutex_unlock(&descriptors->lock);
}

void descriptors_created(struct descriptors *descriptors, uint32_t id)
{
	pthread_mutex_lock(&descriptors->lock);
	descriptors->files[id].existed = true;
	descriptors_give_name(descriptors, id, id);
	pthread_mutex_unlock(&descriptors->lock);
}

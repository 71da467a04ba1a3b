// SPDX-License-Identifier: Apache-2.0
/*
 * Turns paths, as unlink and rename name them, into file ids.
 */
#include "names.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cleanup.h"

enum { SLOTS_MIN = 64 }; /* a power of two, as their number stays */

/*
 * An entry of a directory. A directory is one, too, once something below it is known; what is below knows it by its number,
 * and so goes along when it is renamed.
 */
struct name {
	struct name *next; /* in the same slot */
	uint32_t directory; /* 0 = the root */
	uint32_t number; /* 0 = nothing was below it yet */
	struct named named;
	char text[];
};

/* Where the entries are that have the same hash (FNV-1a) as this one. */
static struct name **slot_of(const struct names *names, uint32_t directory, const char *text, size_t bytes)
{
	uint64_t hash = (0xcbf29ce484222325 ^ directory) * 0x100000001b3;
	for (size_t i = 0; i < bytes; i++)
		hash = (hash ^ (uint8_t)text[i]) * 0x100000001b3;
	return &names->slots[(hash ^ hash >> 32) & (names->slot_count - 1)];
}

static int enlarge(struct names *names)
{
	struct names larger = *names;
	larger.slot_count = names->slot_count ? 2 * names->slot_count : SLOTS_MIN;
	larger.slots = calloc(larger.slot_count, sizeof(*larger.slots));
	if (!larger.slots)
		return -ENOMEM;
	for (size_t i = 0; i < names->slot_count; i++) {
		for (struct name *name = names->slots[i], *next; name; name = next) {
			struct name **slot = slot_of(&larger, name->directory, name->text, strlen(name->text));
			next = name->next;
			name->next = *slot;
			*slot = name;
		}
	}
	free(names->slots);
	*names = larger;
	return 0;
}

/* NULL = no memory. */
static struct name *make_entry(struct names *names, uint32_t directory, const char *text, size_t bytes)
{
	if (names->count == names->slot_count && enlarge(names))
		return NULL;
	struct name *name = malloc(sizeof(*name) + bytes + 1);
	struct name **slot = slot_of(names, directory, text, bytes);
	if (!name)
		return NULL;
	*name = (struct name){.next = *slot, .directory = directory};
	memcpy(name->text, text, bytes);
	name->text[bytes] = '\0';
	*slot = name;
	names->count++;
	return name;
}

static struct name *find_entry(const struct names *names, uint32_t directory, const char *text, size_t bytes)
{
	struct name *name = names->slot_count ? *slot_of(names, directory, text, bytes) : NULL;
	while (name && (name->directory != directory || strncmp(name->text, text, bytes) || name->text[bytes]))
		name = name->next;
	return name;
}

/* What is at an absolute path, component by component. NULL = nothing, and it is not to be made, or there is no memory. */
static struct name *find(struct names *names, const char *path, bool make)
{
	struct name *found = NULL;
	do {
		size_t bytes = strcspn(++path, "/");
		if (found && !found->number && make)
			found->number = ++names->directories;
		if (found && !found->number)
			return NULL;
		uint32_t directory = found ? found->number : 0;
		found = find_entry(names, directory, path, bytes);
		if (!found && make)
			found = make_entry(names, directory, path, bytes);
		path += bytes;
	} while (found && *path);
	return found;
}

static void forget(struct names *names, struct name *name)
{
	struct name **place = slot_of(names, name->directory, name->text, strlen(name->text));
	while (*place != name)
		place = &(*place)->next;
	*place = name->next;
	names->count--;
	free(name);
}

void names_init(struct names *names)
{
	*names = (struct names){};
}

void names_deinit(struct names *names)
{
	for (size_t i = 0; i < names->slot_count; i++)
		while (names->slots[i])
			forget(names, names->slots[i]);
	free(names->slots);
	names_init(names);
}

int names_put(struct names *names, const char *path, struct named named)
{
	struct name *name = find(names, path, true);
	if (!name)
		return -ENOMEM;
	name->named = named;
	return 0;
}

struct named names_find(struct names *names, const char *path)
{
	struct name *name = find(names, path, false);
	return name ? name->named : (struct named){};
}

/* What is replaced comes to stand at the old path, to stay there, or to be forgotten. */
int names_rename(struct names *names, const char *from, const char *to, uint32_t carrier, bool exchange)
{
	struct name *old = find(names, from, false), *new = old ? find(names, to, true) : NULL;
	if (!new)
		return -ENOMEM;
	uint32_t number = new->number, file = new->named.file;
	new->number = old->number;
	new->named = (struct named){old->named.file, carrier};
	old->number = number;
	old->named.file = file;
	if (!exchange)
		forget(names, old);
	return 0;
}

void names_remove(struct names *names, const char *path)
{
	struct name *name = find(names, path, false);
	if (name)
		forget(names, name);
}

char *names_join(const char *directory, const char *path)
{
	size_t room = strlen(directory) + strlen(path) + 3;
	char *joined = malloc(room);
	if (!joined)
		return NULL;
	size_t length = 0;
	const char *parts[2] = {*path == '/' ? "" : directory, path};
	for (int i = 0; i < 2; i++) {
		for (const char *at = parts[i]; *at;) {
			size_t bytes = strcspn(at, "/");
			if (bytes == 2 && at[0] == '.' && at[1] == '.') {
				while (length && joined[--length] != '/')
					;
			} else if (bytes && !(bytes == 1 && *at == '.')) {
				joined[length++] = '/';
				memcpy(joined + length, at, bytes);
				length += bytes;
			}
			at += bytes;
			at += *at == '/';
		}
	}
	if (!length)
		joined[length++] = '/';
	joined[length] = '\0';
	return joined;
}

int names_open_directory(const char *path)
{
	struct open_how how = {
		.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
		.resolve = RESOLVE_CACHED | RESOLVE_NO_MAGICLINKS,
	};
	return syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof(how));
}

/* A directory without symbolic links. NULL = not known, as that of /proc/self and /dev/fd: here it is the recorder's. */
static char *resolve_directory(const char *path)
{
	_cleanup_close_ int directory = names_open_directory(path);
	char link[64], resolved[PATH_MAX];
	snprintf(link, sizeof(link), "/proc/self/fd/%d", directory);
	ssize_t bytes = directory < 0 ? -1 : readlink(link, resolved, sizeof(resolved));
	if (bytes <= 0 || bytes == sizeof(resolved))
		return NULL;
	resolved[bytes] = '\0';
	return strncmp(resolved, "/proc/", strlen("/proc/")) ? strdup(resolved) : NULL;
}

char *names_join_resolved(const char *directory, const char *path)
{
	_cleanup_free_ char *whole = NULL;
	if (asprintf(&whole, "%s/%s", *path == '/' ? "" : directory, path) < 0)
		return NULL;
	size_t bytes = strlen(whole);
	while (bytes > 1 && whole[bytes - 1] == '/')
		whole[--bytes] = '\0';
	char *last = strrchr(whole, '/');
	*last++ = '\0';
	_cleanup_free_ char *resolved = resolve_directory(*whole ? whole : "/");
	return names_join(resolved ? resolved : whole, last);
}

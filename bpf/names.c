// SPDX-License-Identifier: Apache-2.0
/*
 * Turns paths, as unlink and rename name them, into file ids.
 */
#include "names.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <search.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cleanup.h"

struct name {
	uint32_t file;
	char path[];
};

static int compare_names(const void *a, const void *b)
{
	return strcmp(((const struct name *)a)->path, ((const struct name *)b)->path);
}

static struct name *name_create(const char *path, uint32_t file)
{
	size_t bytes = strlen(path) + 1;
	struct name *name = malloc(sizeof(*name) + bytes);
	if (name) {
		name->file = file;
		memcpy(name->path, path, bytes);
	}
	return name;
}

static struct name *find(void *const *tree, const char *path)
{
	struct name *key = name_create(path, 0);
	struct name **node = key ? tfind(key, tree, compare_names) : NULL;
	free(key);
	return node ? *node : NULL;
}

static void forget(void **tree, struct name *name)
{
	if (name) {
		tdelete(name, tree, compare_names);
		free(name);
	}
}

void names_init(struct names *names)
{
	*names = (struct names){};
}

void names_deinit(struct names *names)
{
	tdestroy(names->tree, free);
	tdestroy(names->directories, free);
	names_init(names);
}

/* Enters the directories of a path, from the innermost to the first that is known. 0 or -ENOMEM. */
static int note_directories(struct names *names, const char *path)
{
	struct name *name = name_create(path, 0);
	if (!name)
		return -ENOMEM;
	for (;;) {
		char *slash = strrchr(name->path, '/');
		if (!slash || slash == name->path)
			break;
		*slash = '\0';
		struct name **node = tsearch(name, &names->directories, compare_names);
		if (!node)
			break;
		if (*node != name) {
			free(name);
			return 0;
		}
		name = name_create((*node)->path, 0);
		if (!name)
			return -ENOMEM;
	}
	free(name);
	return 0;
}

int names_put(struct names *names, const char *path, uint32_t file)
{
	struct name *known = find(&names->tree, path);
	if (known) {
		known->file = file;
		return 0;
	}
	struct name *name = name_create(path, file);
	if (!name || !tsearch(name, &names->tree, compare_names)) {
		free(name);
		return -ENOMEM;
	}
	return note_directories(names, path);
}

/* What a walk over the tree collects: the names below a directory. */
struct below {
	const char *directory;
	size_t directory_bytes;
	struct name **names;
	size_t count, room;
	int error;
};

static void collect_below(const void *node, VISIT visit, void *context)
{
	struct below *below = context;
	struct name *name = *(struct name *const *)node;
	if ((visit != postorder && visit != leaf) || strncmp(name->path, below->directory, below->directory_bytes) ||
	    name->path[below->directory_bytes] != '/')
		return;
	if (below->count == below->room) {
		size_t room = below->room ? below->room * 2 : 64;
		struct name **grown = realloc(below->names, room * sizeof(struct name *));
		if (!grown) {
			below->error = -ENOMEM;
			return;
		}
		below->names = grown;
		below->room = room;
	}
	below->names[below->count++] = name;
}

/* A directory that is not there any more, nor what lies below it. */
static int forget_directory(struct names *names, const char *directory)
{
	struct below below = {.directory = directory, .directory_bytes = strlen(directory)};
	twalk_r(names->directories, collect_below, &below);
	for (size_t i = 0; i < below.count; i++)
		forget(&names->directories, below.names[i]);
	free(below.names);
	forget(&names->directories, find(&names->directories, directory));
	return below.error;
}

int names_move_directory(struct names *names, const char *from, const char *to)
{
	struct name *key = name_create(from, 0);
	if (!key)
		return -ENOMEM;
	bool is_directory = tfind(key, &names->directories, compare_names) != NULL;
	free(key);
	if (!is_directory)
		return 0;
	struct below below = {.directory = from, .directory_bytes = strlen(from)};
	twalk_r(names->tree, collect_below, &below);
	for (size_t i = 0; i < below.count; i++) {
		struct name *name = below.names[i];
		char *moved = NULL;
		if (asprintf(&moved, "%s%s", to, name->path + below.directory_bytes) < 0)
			below.error = -ENOMEM;
		else if (names_put(names, moved, name->file))
			below.error = -ENOMEM;
		free(moved);
		forget(&names->tree, name);
	}
	free(below.names);
	return below.error ? below.error : forget_directory(names, from);
}

uint32_t names_find(const struct names *names, const char *path)
{
	struct name *name = find(&names->tree, path);
	return name ? name->file : 0;
}

void names_remove(struct names *names, const char *path)
{
	forget(&names->tree, find(&names->tree, path));
	forget(&names->directories, find(&names->directories, path));
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

// SPDX-License-Identifier: Apache-2.0
/*
 * Turns paths, as unlink and rename name them, into file ids.
 */
#include "names.h"

#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

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

static struct name *find(const struct names *names, const char *path)
{
	struct name *key = name_create(path, 0);
	struct name **node = key ? tfind(key, &names->tree, compare_names) : NULL;
	free(key);
	return node ? *node : NULL;
}

void names_init(struct names *names)
{
	names->tree = NULL;
}

void names_deinit(struct names *names)
{
	tdestroy(names->tree, free);
	names->tree = NULL;
}

int names_put(struct names *names, const char *path, uint32_t file)
{
	struct name *known = find(names, path);
	if (known) {
		known->file = file;
		return 0;
	}
	struct name *name = name_create(path, file);
	if (!name || !tsearch(name, &names->tree, compare_names)) {
		free(name);
		return -ENOMEM;
	}
	return 0;
}

uint32_t names_find(const struct names *names, const char *path)
{
	struct name *name = find(names, path);
	return name ? name->file : 0;
}

void names_remove(struct names *names, const char *path)
{
	struct name *name = find(names, path);
	if (name) {
		tdelete(name, &names->tree, compare_names);
		free(name);
	}
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

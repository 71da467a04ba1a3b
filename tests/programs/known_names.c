// SPDX-License-Identifier: Apache-2.0
/*
 * What the recorder keeps of names after some calls on them: a line for each path that is to be found, with its file and
 * the one that carries the path, and one of how many entries of directories are kept. Files, and the new names of renames,
 * are numbered in the order of their coming.
 *
 *	known_names put PATH | remove PATH | rename FROM TO | exchange FROM TO | find PATH ...
 */
#include <stdio.h>
#include <string.h>

#include "bpf/names.h"

int main(int words_count, char **words)
{
	struct names names;
	uint32_t id = 0;
	int error = 0;

	names_init(&names);
	for (int i = 1; i + 1 < words_count && !error; i += 2) {
		const char *path = words[i + 1];
		bool exchange = !strcmp(words[i], "exchange");

		if (!strcmp(words[i], "put")) {
			id++;
			error = names_put(&names, path, (struct named){id, id});
		} else if (!strcmp(words[i], "remove")) {
			names_remove(&names, path);
		} else if ((exchange || !strcmp(words[i], "rename")) && i + 2 < words_count) {
			error = names_rename(&names, path, words[++i + 1], ++id, exchange);
		} else {
			struct named named = names_find(&names, path);

			printf("%s %u %u\n", path, named.file, named.carrier);
		}
	}
	printf("%zu\n", names.count);
	names_deinit(&names);
	return error != 0;
}

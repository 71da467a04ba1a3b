// SPDX-License-Identifier: Apache-2.0
/*
 * What the recorder keeps of names after some calls on them: a line for each path that is to be found, with its file, and
 * one of how many names and directories are kept. Files are numbered in the order of their coming.
 *
 *	known_names put PATH | remove PATH | move FROM TO | find PATH ...
 */
#include <search.h>
#include <stdio.h>
#include <string.h>

#include "bpf/names.h"

static void count(const void *node, VISIT visit, void *counted)
{
	(void)node;
	*(unsigned int *)counted += visit == postorder || visit == leaf;
}

static unsigned int count_of(const void *tree)
{
	unsigned int counted = 0;

	twalk_r(tree, count, &counted);
	return counted;
}

int main(int words_count, char **words)
{
	struct names names;
	uint32_t file = 0;
	int error = 0;

	names_init(&names);
	for (int i = 1; i + 1 < words_count && !error; i += 2) {
		const char *path = words[i + 1];

		if (!strcmp(words[i], "put"))
			error = names_put(&names, path, ++file);
		else if (!strcmp(words[i], "remove"))
			names_remove(&names, path);
		else if (!strcmp(words[i], "move") && i + 2 < words_count)
			error = names_move_directory(&names, path, words[++i + 1]);
		else
			printf("%s %u\n", path, names_find(&names, path));
	}
	printf("%u %u\n", count_of(names.tree), count_of(names.directories));
	names_deinit(&names);
	return error != 0;
}

// SPDX-License-Identifier: Apache-2.0
// Turns ids of files into what is known of each while the records of a trace are gone through.
#include <errno.h>
#include <stdlib.h>

#include "replayer/engine/file_list.h"

int list_extend(struct file_list *list, uint32_t index)
{
	if (index < list->count)
		return 0;
	if (index >= list->room) {
		uint32_t room = index < UINT32_MAX / 2 ? 2 * (index + 1) : index + 1;
		struct file *files = reallocarray(list->files, room, sizeof(*files));
		if (files)
			list->files = files;
		struct moment *moments = reallocarray(list->moments, room, sizeof(*moments));
		if (moments)
			list->moments = moments;
		struct path_hash *paths = reallocarray(list->paths, room, sizeof(*paths));
		if (paths)
			list->paths = paths;
		if (!files || !moments || !paths)
			return -ENOMEM;
		list->room = room;
	}
	for (; list->count <= index; list->count++) {
		list->files[list->count] = (struct file){.resident_bytes = TRACE_NOT_MEASURED_U64};
		list->moments[list->count] = (struct moment){0};
		list->paths[list->count] = (struct path_hash){0};
	}
	return 0;
}

void list_free(struct file_list *list)
{
	free(list->files);
	free(list->moments);
	free(list->paths);
}

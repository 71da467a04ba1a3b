// SPDX-License-Identifier: Apache-2.0
// Turns the paths of files, kept as hashes, into who has the same one and who lies in which directory.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "bpf/cleanup.h"
#include "replayer/engine/file_paths.h"

/* FNV-1a */
#define HASH_OF_NOTHING 0xcbf29ce484222325ull
#define HASH_PRIME 0x100000001b3ull

struct hashed {
	uint64_t hash;
	uint32_t id;
};

static uint64_t hash_on(uint64_t hash, char character)
{
	return (hash ^ (uint8_t)character) * HASH_PRIME;
}

void path_begin(struct path_hash *hash, const struct file_record *record)
{
	*hash = (struct path_hash){.path = record->path_bytes ? HASH_OF_NOTHING : 0, .inode = record->inode};
}

void path_append(struct path_hash *hash, const struct text_record *text)
{
	uint32_t bytes = text->bytes < TRACE_TEXT_BYTES ? text->bytes : TRACE_TEXT_BYTES;

	for (uint32_t i = 0; i < bytes && hash->path; i++) {
		if (text->text[i] == '/')
			hash->directory = hash->path;
		hash->path = hash_on(hash->path, text->text[i]);
	}
}

bool path_is_nameless(const struct path_hash *hash)
{
	char name[32];
	uint64_t path = hash->directory;

	snprintf(name, sizeof(name), "/#%llu", (unsigned long long)hash->inode);
	for (const char *at = name; *at; at++)
		path = hash_on(path, *at);
	return hash->inode && path == hash->path;
}

static int compare_hashed(const void *left, const void *right)
{
	const struct hashed *a = left, *b = right;

	if (a->hash != b->hash)
		return a->hash < b->hash ? -1 : 1;
	return a->id < b->id ? -1 : a->id > b->id;
}

/* The first file with a path, or 0. */
static uint32_t find(const struct hashed *hashed, uint32_t count, uint64_t hash)
{
	uint32_t low = 0, high = count;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (hashed[middle].hash < hash)
			low = middle + 1;
		else
			high = middle;
	}
	return low < count && hashed[low].hash == hash ? hashed[low].id : 0;
}

int file_paths_resolve(struct file_table *table, const struct path_hash *hashes)
{
	_cleanup_free_ struct hashed *hashed = calloc(table->count, sizeof(*hashed));
	uint32_t count = 0;

	if (!hashed)
		return -ENOMEM;
	for (uint32_t id = 1; id < table->count; id++) {
		table->files[id].path = id;
		if (hashes[id].path)
			hashed[count++] = (struct hashed){hashes[id].path, id};
	}
	qsort(hashed, count, sizeof(*hashed), compare_hashed);
	for (uint32_t i = 1; i < count; i++) {
		if (hashed[i].hash == hashed[i - 1].hash)
			table->files[hashed[i].id].path = table->files[hashed[i - 1].id].path;
	}
	/* Names stand behind files: each file of a path may be the one that is replaced. */
	bool replaced = false;
	for (uint32_t i = count; i > 0; i--) {
		struct file *file = &table->files[hashed[i - 1].id];

		replaced &= i < count && hashed[i].hash == hashed[i - 1].hash;
		replaced |= file->new_name && file->renamed;
		file->renamed |= replaced;
	}
	for (uint32_t id = 1; id < table->count; id++) {
		uint32_t parent = hashes[id].directory ? find(hashed, count, hashes[id].directory) : 0;

		table->files[id].parent = parent;
		/* Of some only the name is known: one that others lie in is a directory. */
		if (parent >= table->names_from && !table->files[parent].new_name)
			table->files[parent].directory = true;
	}
	return 0;
}

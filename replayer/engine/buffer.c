// SPDX-License-Identifier: Apache-2.0
// Turns a size into memory for requests of that size.
#include <errno.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bpf/cleanup.h"
#include "replayer/engine/buffer.h"
#include "replayer/engine/data_fill.h"

static int map_windows(struct buffer *buffer, uint64_t window_bytes)
{
	_cleanup_close_ int memory = memfd_create("flextrace-buffer", MFD_CLOEXEC);

	if (memory < 0 || ftruncate(memory, (off_t)window_bytes) < 0)
		return -errno;
	for (uint64_t at = 0; at < buffer->bytes; at += window_bytes) {
		void *window = mmap(buffer->data + at, window_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
				    memory, 0);

		if (window == MAP_FAILED)
			return -errno;
	}
	return 0;
}

int buffer_map(struct buffer *buffer, uint64_t bytes, unsigned int data_percent)
{
	bool large = bytes > BUFFER_WINDOW_BYTES;
	/* Data is in memory that stays where it is when its pages are taken out of the mapping (first_touch.c). */
	bool windows = large || data_percent;
	uint64_t grain = large ? BUFFER_WINDOW_BYTES : 4096;

	*buffer = (struct buffer){.bytes = (bytes + grain - 1) / grain * grain};
	if (!bytes)
		return 0;
	void *data = mmap(NULL, buffer->bytes, windows ? PROT_NONE : PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (data == MAP_FAILED)
		return -errno;
	buffer->data = data;
	uint64_t window_bytes = large ? BUFFER_WINDOW_BYTES : buffer->bytes;
	int error = windows ? map_windows(buffer, window_bytes) : 0;
	if (error)
		buffer_unmap(buffer);
	else if (data_percent)
		fill_data(buffer->data, window_bytes, 1, data_percent);
	return error;
}

int buffer_map_shared(struct buffer *buffer, uint64_t bytes)
{
	void *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	*buffer = (struct buffer){.bytes = bytes};
	if (data == MAP_FAILED)
		return -errno;
	buffer->data = data;
	return 0;
}

void buffer_unmap(struct buffer *buffer)
{
	if (buffer->data)
		munmap(buffer->data, buffer->bytes);
	buffer->data = NULL;
}

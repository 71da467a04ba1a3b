// SPDX-License-Identifier: Apache-2.0
// Turns a trace file into an array of records in memory, by mapping it.
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bpf/cleanup.h"
#include "replayer/engine/message.h"
#include "replayer/engine/trace_loss.h"
#include "replayer/engine/trace_reader.h"

static int check_header(const char *path, const struct trace_header *header, uint64_t file_bytes)
{
	if (file_bytes < sizeof(header->magic) || memcmp(header->magic, TRACE_MAGIC, sizeof(header->magic)) != 0) {
		complain(
			"%s is not a flextrace trace (it does not begin with %s); to use a trace of another tool, run 'flextrace import' first",
			path, TRACE_MAGIC);
		return -EINVAL;
	}
	if (file_bytes < TRACE_HEADER_BYTES) {
		complain("%s is cut off within its header (%llu of %d bytes): nothing to replay", path,
			 (unsigned long long)file_bytes, TRACE_HEADER_BYTES);
		return -EINVAL;
	}
	if (header->version_major != TRACE_VERSION_MAJOR) {
		complain(
			"%s has trace format version %u.%u, this flextrace reads version %d.x: use the flextrace that wrote it, or a newer one",
			path, header->version_major, header->version_minor, TRACE_VERSION_MAJOR);
		return -EINVAL;
	}
	if (header->header_bytes != TRACE_HEADER_BYTES || header->record_bytes != TRACE_RECORD_BYTES) {
		complain("%s is damaged: header of %u and records of %u bytes, expected %d and %d", path,
			 header->header_bytes, header->record_bytes, TRACE_HEADER_BYTES, TRACE_RECORD_BYTES);
		return -EINVAL;
	}
	return 0;
}

int trace_check_stop(const struct trace *trace)
{
	if (!atomic_load(trace->stop))
		return 0;
	if (trace_is_lost())
		complain("cannot read %s to its end: it was cut off, or its disk failed: nothing was replayed",
			 trace->path);
	else
		complain("interrupted while reading %s: nothing was replayed", trace->path);
	return -EINTR;
}

static int count_records(struct trace *trace, uint64_t file_bytes)
{
	uint64_t whole = (file_bytes - TRACE_HEADER_BYTES) / TRACE_RECORD_BYTES;
	uint64_t count = trace->header.record_count;

	if (trace->header.flags & TRACE_INCOMPLETE) {
		/* A crash can leave a file longer than what reached the disk; kind 0 is never written. */
		for (count = 0; count < whole && trace->records[count].kind != 0; count++) {
			int error = trace_pass(trace, count);

			if (error)
				return error;
		}
	} else if (count > whole) {
		complain(
			"%s is truncated: %llu of %llu records are there; copy it again, or cut and mark it as incomplete to replay what is left",
			trace->path, (unsigned long long)whole, (unsigned long long)count);
		return -EINVAL;
	}
	trace->count = count;
	return 0;
}

int trace_open(struct trace *trace, const char *path, atomic_bool *stop)
{
	_cleanup_close_ int descriptor = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	struct stat status;

	*trace = (struct trace){.path = path, .stop = stop};
	if (descriptor < 0 || fstat(descriptor, &status) < 0) {
		int error = errno;

		complain("cannot read trace %s: %s%s", path, strerror(error), way_remedy(error, path));
		return -error;
	}
	if (!S_ISREG(status.st_mode)) {
		complain("cannot read trace %s: it is not a regular file, which is needed to map it", path);
		return -EINVAL;
	}
	if (status.st_size == 0) {
		complain("%s is empty: it is not a flextrace trace", path);
		return -EINVAL;
	}
	void *map = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, descriptor, 0);
	if (map == MAP_FAILED) {
		complain("cannot map trace %s: %s", path, strerror(errno));
		return -errno;
	}
	trace_loss_watch(map, (size_t)status.st_size, stop);
	/* Only a hint, for more to be read ahead. */
	(void)madvise(map, (size_t)status.st_size, MADV_SEQUENTIAL);
	trace->map = map;
	trace->records = (const union record *)((const char *)map + TRACE_HEADER_BYTES);
	trace->mapped_bytes = (size_t)status.st_size;
	int error = check_header(path, map, (uint64_t)status.st_size);
	if (!error) {
		trace->header = *(const struct trace_header *)map;
		error = count_records(trace, (uint64_t)status.st_size);
	}
	if (error)
		trace_close(trace);
	return error;
}

void trace_close(struct trace *trace)
{
	if (trace->map)
		munmap((void *)trace->map, trace->mapped_bytes);
	trace->map = NULL;
}

void trace_drop(const struct trace *trace, uint64_t first, uint64_t count)
{
	uintptr_t page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t begin = (uintptr_t)&trace->records[first] / page_bytes * page_bytes;

	/* The pages stay in the page cache: only the mapping, by which they count as this process's, goes. */
	(void)madvise((void *)begin, (uintptr_t)&trace->records[first + count] - begin, MADV_DONTNEED);
}

int trace_pass(const struct trace *trace, uint64_t number)
{
	if (number % TRACE_BLOCK_RECORDS || !number)
		return 0;
	trace_drop(trace, number - TRACE_BLOCK_RECORDS, TRACE_BLOCK_RECORDS);
	return trace_check_stop(trace);
}

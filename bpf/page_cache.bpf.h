/* SPDX-License-Identifier: Apache-2.0 OR BSD-2-Clause */
/*
 * Pages that came from a device -> missed_bytes of the reads that take them.
 *
 * page_cache.bpf.c marks every page that a traced thread brings into the page cache, wanted or read ahead, in a bitmap by
 * file and page. The read that takes a page first clears its mark and counts its bytes. So nothing depends on the offset
 * being known before the end of the read, one pass over a cold file misses all of it whatever read it ahead, and a second
 * pass nothing. A cached read costs one array lookup.
 *
 * Of a page that a read takes in part, the part that was taken is remembered, so that a pass in odd steps misses every
 * byte once as well.
 *
 * A marked page that is evicted before anybody took it stays marked: whoever reads it has to bring it in again, which
 * sets the same mark. The mark is wrong only if a write makes the page anew; that clears it. Marks that fall out of the
 * table (pages of 16 GiB, read ahead and never taken) count as hits.
 */
#ifndef FLEXTRACE_PAGE_CACHE_BPF_H
#define FLEXTRACE_PAGE_CACHE_BPF_H

#include "file_identity.bpf.h"

enum {
	FS_REQUIRES_DEVICE = 1, /* FS_REQUIRES_DEV */
	FUSE_MAGIC = 0x65735546, /* FUSE_SUPER_MAGIC */
	PAGE_SHIFT = 12, /* of PAGE_BYTES; the other page sizes of arm64 are not supported */
	MARK_SHIFT = 6, /* pages of one bitmap, as a power of two */
	MARK_PAGES = 1 << MARK_SHIFT,
	MARKS_MAX = 1 << 16, /* bitmaps of MARK_PAGES pages */
	PARTS_MAX = 1 << 12,
	PROGRAM_FILES_MAX = 1 << 14, /* beyond it, pages of programs look like data */
	MARKED_FILES = 1 << 12, /* files of equal number modulo this share a counter */
	READ_BYTES_MAX = 0x7ffff000, /* MAX_RW_COUNT: no call moves more */
	READ_BITMAPS_MAX = READ_BYTES_MAX / (MARK_PAGES * PAGE_BYTES) + 2,
};

struct page_key {
	__u32 file;
	__u32 number; /* of the bitmap in marks: page / MARK_PAGES; of the page in parts */
};

/* Pages that came from a device and that no read has taken. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MARKS_MAX);
	__type(key, struct page_key);
	__type(value, __u64);
} marks __weak SEC(".maps");

/* What has been taken of a page whose mark is gone, while it is not the whole page. */
struct taken_part {
	__u32 from, to; /* bytes within the page */
};
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, PARTS_MAX);
	__type(key, struct page_key);
	__type(value, struct taken_part);
} parts __weak SEC(".maps");

/*
 * How much of the two tables above a file has: spares most reads the search. Only grows too large, where entries are
 * pushed out of the tables.
 */
struct marked_count {
	__s64 pages;
	__s64 parts;
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MARKED_FILES);
	__type(key, __u32);
	__type(value, struct marked_count);
} marked_counts __weak SEC(".maps");

static __always_inline struct marked_count *marked_count_of(__u32 file)
{
	__u32 slot = file % MARKED_FILES;
	return bpf_map_lookup_elem(&marked_counts, &slot);
}

/* Bits of the pages [first, end) in the bitmap that begins with page `base`. */
static __always_inline __u64 mark_bits(__u64 base, __u64 first, __u64 end)
{
	__u64 from = first > base ? first - base : 0;
	__u64 to = end - base < MARK_PAGES ? end - base : MARK_PAGES;
	if (end <= base || from >= to)
		return 0;
	__u64 bits = to - from == MARK_PAGES ? ~0ull : (1ull << (to - from)) - 1;
	return bits << from;
}

static __always_inline __u32 bits_set(__u64 bits)
{
	return __builtin_popcountll(bits);
}

/* Whether a traced thread has brought in a page that no read has taken since. */
static __always_inline bool is_marked(__u32 file, __u64 offset)
{
	__u64 page = offset >> PAGE_SHIFT;
	struct page_key key = {.file = file, .number = page >> MARK_SHIFT};
	const __u64 *marked = bpf_map_lookup_elem(&marks, &key);
	return marked && *marked >> (page & (MARK_PAGES - 1)) & 1;
}

/* A read, while its marks are taken. */
struct taking {
	__u64 first, end; /* pages */
	__u64 pages; /* that were marked */
	__u32 file;
	__u8 first_was_marked, last_was_marked;
};

/* The bitmap that is `index` further than that of the first page. */
static long take_bitmap(__u32 index, void *context)
{
	struct taking *taking = context;
	__u64 number = (taking->first >> MARK_SHIFT) + index;
	struct page_key key = {.file = taking->file, .number = number};
	__u64 base = number << MARK_SHIFT;
	struct marked_count *count = marked_count_of(taking->file);
	/* Where the file has no marks left, there is nothing to look for. */
	if (base >= taking->end || !count || count->pages <= 0)
		return 1;
	__u64 *marked = bpf_map_lookup_elem(&marks, &key);
	__u64 wanted = mark_bits(base, taking->first, taking->end);
	if (!marked || !(*marked & wanted))
		return 0;
	__u64 taken = __sync_fetch_and_and(marked, ~wanted) & wanted;
	if (index == 0)
		taking->first_was_marked = taken >> (taking->first & (MARK_PAGES - 1)) & 1;
	if (taking->end - base <= MARK_PAGES)
		taking->last_was_marked = taken >> ((taking->end - 1) & (MARK_PAGES - 1)) & 1;
	__u32 pages = bits_set(taken);
	__sync_fetch_and_add(&count->pages, -(__s64)pages);
	taking->pages += pages;
	return 0;
}

/*
 * The first or last page of a read, of which it took the bytes [from, to); page_bytes is less than a page at the end of
 * the file. Returns the bytes that nobody had taken before, of a page whose mark is gone.
 */
static __always_inline __u32 take_part(__u32 file, struct marked_count *count, __u64 page, struct taken_part range,
				       __u32 page_bytes, bool was_marked)
{
	struct page_key key = {.file = file, .number = page};
	bool whole = range.from == 0 && range.to >= page_bytes;
	if (was_marked) {
		if (!whole && !bpf_map_update_elem(&parts, &key, &range, BPF_ANY))
			__sync_fetch_and_add(&count->parts, 1);
		return 0;
	}
	if (count->parts <= 0)
		return 0;
	struct taken_part *before = bpf_map_lookup_elem(&parts, &key);
	if (!before)
		return 0;
	__u32 overlap_from = range.from > before->from ? range.from : before->from;
	__u32 overlap_to = range.to < before->to ? range.to : before->to;
	__u32 fresh = range.to - range.from - (overlap_to > overlap_from ? overlap_to - overlap_from : 0);
	/* Two parts that do not touch become one with what is between them: no byte counts twice. */
	struct taken_part now = {.from = range.from < before->from ? range.from : before->from,
				 .to = range.to > before->to ? range.to : before->to};
	*before = now;
	if (now.from == 0 && now.to >= page_bytes && !bpf_map_delete_elem(&parts, &key))
		__sync_fetch_and_add(&count->parts, -1);
	return fresh;
}

/* Bytes of a page that lie before the end of the file. */
static __always_inline __u32 bytes_of_page(__u64 page, __u64 size_bytes)
{
	__u64 start = page << PAGE_SHIFT;
	return size_bytes > start && size_bytes - start < PAGE_BYTES ? size_bytes - start : PAGE_BYTES;
}

/* Verified once by itself (see number_of). */
__weak __u32 take_marked(__u32 file, __u64 offset, __u64 bytes, __u64 size_bytes)
{
	struct marked_count *count = marked_count_of(file);
	if (!count)
		return 0;
	__u64 end_bytes = offset + bytes;
	struct taking taking = {
		.first = offset >> PAGE_SHIFT, .end = (end_bytes + PAGE_BYTES - 1) >> PAGE_SHIFT, .file = file};
	bpf_loop(READ_BITMAPS_MAX, take_bitmap, &taking, 0);

	__u64 last = taking.end - 1;
	__u32 from = offset & (PAGE_BYTES - 1);
	__u32 to = end_bytes - (last << PAGE_SHIFT);
	__u64 missed = taking.pages << PAGE_SHIFT;
	if (taking.first_was_marked)
		missed -= from;
	if (taking.last_was_marked)
		missed -= PAGE_BYTES - to;
	struct taken_part range = {.from = from, .to = taking.first == last ? to : PAGE_BYTES};
	missed += take_part(file, count, taking.first, range, bytes_of_page(taking.first, size_bytes),
			    taking.first_was_marked);
	if (last != taking.first) {
		range = (struct taken_part){.from = 0, .to = to};
		missed += take_part(file, count, last, range, bytes_of_page(last, size_bytes), taking.last_was_marked);
	}
	return missed;
}

/*
 * Bytes of [offset, offset + done) that came from the device and not from the cache, for the read that took them: to be
 * called once, at its end. A direct read is not for this: all of it came from the device.
 */
static __always_inline __u32 take_missed_of(__u32 file, __u64 inode_pointer, __u64 offset, __s64 done)
{
	struct marked_count *count = marked_count_of(file);
	if (!file || done <= 0 || !count || (count->pages <= 0 && count->parts <= 0))
		return 0;
	struct inode *inode = (struct inode *)inode_pointer;
	return take_marked(file, offset, done, read_field(inode, i_size));
}

/*
 * Whether a running call has to be asked, at its end, if it had the device read anything: in a file system on block
 * devices the kernel charges the thread with each such bio. FUSE reads in another process, even from a device.
 */
static __always_inline bool is_read_by_bios(const struct task_state *state, const struct inode *inode)
{
	return state->id && !state->request && BPF_CORE_READ(inode, i_sb, s_type, fs_flags) & FS_REQUIRES_DEVICE &&
	       BPF_CORE_READ(inode, i_sb, s_magic) != FUSE_MAGIC;
}

/* Pages [first, end) that the running call has brought in and marked. */
static __always_inline void note_brought(struct task_state *state, __u64 first, __u64 end)
{
	if (state->brought_id != state->id) {
		state->brought_id = state->id;
		state->brought_first = first;
		state->brought_end = end;
		state->brought_read_bytes = bpf_get_current_task_btf()->ioac.read_bytes;
	}
	if (first < state->brought_first)
		state->brought_first = first;
	if (end > state->brought_end)
		state->brought_end = end;
}

/* Of a call that has brought in pages and had nothing read: they are of holes, or were never written, and no misses. */
static __always_inline void forget_holes(const struct task_state *state)
{
	__u64 first = state->brought_first, end = state->brought_end;
	if (state->brought_id == state->id && state->brought_read_bytes == bpf_get_current_task_btf()->ioac.read_bytes)
		take_marked(state->file, first << PAGE_SHIFT, (end - first) << PAGE_SHIFT, end << PAGE_SHIFT);
}

static __always_inline __u32 take_missed(const struct task_state *state, __s64 done)
{
	forget_holes(state);
	return take_missed_of(state->file, state->inode_pointer, state->position, done);
}

/* Files that are mapped as programs: their pages are not the program's data. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, PROGRAM_FILES_MAX);
	__type(key, __u32);
	__type(value, __u8);
} program_files __weak SEC(".maps");

/* A file that is mapped. Of one for which there was no room nothing tells the page faults. */
static __always_inline void note_mapped(__u32 file, bool executable)
{
	__u8 yes = 1;
	if (file == FILE_BEYOND)
		count_beyond(RECORD_FILE, bpf_ktime_get_ns());
	else if (file && executable)
		bpf_map_update_elem(&program_files, &file, &yes, BPF_ANY);
}

static __always_inline bool is_program(__u32 file)
{
	return bpf_map_lookup_elem(&program_files, &file) != NULL;
}

#endif /* FLEXTRACE_PAGE_CACHE_BPF_H */

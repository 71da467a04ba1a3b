// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Page faults of traced threads on mapped files -> IO records (SOURCE_MMAP, IO_ESTIMATED).
 *
 * What a program does with a page that is mapped already is seen by nobody. A fault tells that one page was wanted; the
 * kernel maps up to 16 around it that are in the cache, and since 6.18 the whole of large folios, which will be touched
 * without a fault. So the record of a fault is all that can be touched from now on, as one range: each page stands in one
 * record of a fault. Two faults can name the same page: the tracepoint does not tell what was mapped before.
 *
 * The order of the tracepoints in one fault (6.18):
 *	cached				map_pages
 *	cached, the first store		filemap_fault (a store maps only its own page)
 *	not cached			filemap_fault, wait, map_pages
 *	neighbours cached		map_pages, filemap_fault, wait, map_pages
 *	a store, not cached		filemap_fault, wait, filemap_fault
 *	the page that triggers the next read-ahead	map_pages, filemap_fault, map_pages
 * A store to a page that is not mapped is a READ here (the kernel has to have the page) and, where it makes the page dirty,
 * a WRITE as well.
 *
 * tmpfs: only map_pages, as it has its own fault handler and keeps no account of dirty pages.
 */
#include "folio.bpf.h"
#include "mapped_file.bpf.h"
#include "page_cache.bpf.h"
#include "record_mmap.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* The fault that runs in this thread, begun here if this is the first that is heard of it. */
static __always_inline struct page_fault *current_fault(struct task_state *state, struct inode *inode)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct page_fault *fault = make_storage(&page_faults, task);
	if (!fault) {
		count_loss(RECORD_IO, bpf_ktime_get_ns());
		return NULL;
	}
	__u64 number = fault_number(task);
	if (fault->number != number || fault->inode_pointer != (__u64)inode) {
		fault->number = number;
		fault->inode_pointer = (__u64)inode;
		fault->id = next_operation_id(state);
		fault->start_ns = bpf_ktime_get_ns();
		fault->first = fault->end = 0;
		fault->id_used = fault->waits = 0;
	}
	return fault;
}

static __always_inline void send_pages(struct task_state *state, struct page_fault *fault, __u32 file,
				       struct inode *inode, __u64 first, __u64 end)
{
	if (first >= end)
		return;
	if (fault->id_used)
		fault->id = next_operation_id(state);
	fault->id_used = 1;
	struct mapped_pages pages = {.file = file,
				     .first = first,
				     .end = end,
				     .id = fault->id,
				     .wait_start_ns = fault->waits ? fault->start_ns : 0};
	send_mapped_pages(state, IO_READ, &pages, inode);
}

static __always_inline __u64 file_pages(const struct inode *inode)
{
	return ((__u64)inode->i_size + PAGE_BYTES - 1) >> PAGE_SHIFT;
}

/*
 * To the whole of large folios. The kernel maps a folio page by page all the same where a part of it is mapped already or
 * the mapping lies across it; that shows in a fault on another part of it, which then is only for what it names.
 * (A fault on the same part is one of a new mapping.)
 */
static __always_inline void widen(struct page_fault *fault, struct page_range *range, __u64 limit)
{
	bool again = fault->wide_inode_pointer == fault->inode_pointer && range->first >= fault->wide_first &&
		     range->end <= fault->wide_end && range->first != fault->wide_asked;
	__u64 asked = range->first, pages = range->end - asked;
	if (again)
		return;
	widen_to_folios(range, limit);
	if (range->end - range->first == pages)
		return;
	fault->wide_inode_pointer = fault->inode_pointer;
	fault->wide_first = range->first;
	fault->wide_end = range->end;
	fault->wide_asked = asked;
}

/* Within mmap what lies below an overlay is not known yet. */
static __always_inline __u32 file_of_mapped(const struct task_state *state, const struct inode *inode)
{
	__u32 file = find_inode(inode);
	return file || state->call != CALL_MMAP ? file : enter_inode_below(state, inode);
}

SEC("tp_btf/mm_filemap_fault")
int BPF_PROG(mm_filemap_fault, struct address_space *mapping, unsigned long page)
{
	struct task_state *state = current_state();
	if (!state)
		return 0;
	struct inode *inode = mapping->host;
	__u32 file = file_of_mapped(state, inode);
	struct page_fault *fault = file ? current_fault(state, inode) : NULL;
	if (!fault || (page >= fault->first && page < fault->end))
		return 0;
	struct page_range range = {.first = page, .end = page + 1};
	__u64 address = (__u64)BPF_CORE_READ(inode, i_mapping);
	bool is_there = narrow_to_data(address, &range);
	/* The second time it is there, or is read without another beginning. */
	if (!is_there && !fault->waits) {
		fault->waits = 1;
		/* What the device is asked for from now on is not for the neighbours that were mapped before. */
		if (fault->id_used)
			fault->id = next_operation_id(state);
		fault->id_used = 0;
		return 0;
	}
	if (is_there)
		widen(fault, &range, file_pages(inode));
	send_pages(state, fault, file, inode, range.first, range.end);
	fault->first = range.first;
	fault->end = range.end;
	return 0;
}

static __always_inline void send_piece(struct task_state *state, struct page_fault *fault, __u32 file,
				       struct inode *inode, __u64 address, struct page_range *piece)
{
	if (piece->first < piece->end && narrow_to_data(address, piece))
		send_pages(state, fault, file, inode, piece->first, piece->end);
}

/* What has come since the first time that this fault mapped pages, on both sides of what there was. */
static __always_inline void send_rest(struct task_state *state, struct page_fault *fault, __u32 file,
				      struct inode *inode, __u64 address, struct page_range *range)
{
	__u64 first = range->first, end = range->end;
	range->end = end < fault->first ? end : fault->first;
	send_piece(state, fault, file, inode, address, range);
	range->first = first > fault->end ? first : fault->end;
	range->end = end;
	send_piece(state, fault, file, inode, address, range);
	fault->first = first < fault->first ? first : fault->first;
	fault->end = end > fault->end ? end : fault->end;
}

/* The range is what may be mapped; what is mapped are the pages in it that are there. `last` is in the range. */
SEC("tp_btf/mm_filemap_map_pages")
int BPF_PROG(mm_filemap_map_pages, struct address_space *mapping, unsigned long first, unsigned long last)
{
	struct task_state *state = current_state();
	if (!state || last < first)
		return 0;
	struct inode *inode = mapping->host;
	__u32 file = file_of_mapped(state, inode);
	struct page_fault *fault = file ? current_fault(state, inode) : NULL;
	__u64 address = (__u64)BPF_CORE_READ(inode, i_mapping);
	struct page_range range = {.first = first, .end = (__u64)last + 1};
	if (!fault || !narrow_to_data(address, &range))
		return 0;
	/* The kernel leaves out a folio that ends where the file ends, here but not in mm_filemap_fault. */
	widen(fault, &range, file_pages(inode) - 1);
	if (fault->first != fault->end) {
		send_rest(state, fault, file, inode, address, &range);
		return 0;
	}
	send_pages(state, fault, file, inode, range.first, range.end);
	fault->first = range.first;
	fault->end = range.end;
	return 0;
}

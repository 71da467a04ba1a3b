/* SPDX-License-Identifier: Apache-2.0 OR BSD-2-Clause */
/*
 * What a folio and a file's tree of folios say: how many pages, which of them hold data. Layouts differ between kernels.
 */
#ifndef FLEXTRACE_FOLIO_BPF_H
#define FLEXTRACE_FOLIO_BPF_H

#include "file_identity.bpf.h"

enum {
	TREE_LEVELS_MAX = 11, /* 64 bits of an index, 6 for each level */
	TREE_SLOTS = 64, /* of a node; XA_CHUNK_SIZE without CONFIG_BASE_SMALL */
	WINDOW_PAGES_MAX = 16, /* mapped around a fault at once: fault_around_bytes is 64 KiB */
};

struct page_range {
	__u64 first, end;
	__u64 first_folio, last_folio; /* addresses, 0 = not looked for */
};

static __always_inline struct folio *folio_of(const struct page *page)
{
	__u64 head = BPF_CORE_READ(page, compound_head);
	return (struct folio *)(head & 1 ? head - 1 : (__u64)page);
}

static __always_inline unsigned long folio_flags(const struct folio *folio)
{
	if (bpf_core_field_exists(((struct folio___since_6_18 *)0)->flags.f))
		return read_field((struct folio___since_6_18 *)folio, flags.f);
	return read_field((struct folio___before_6_18 *)folio, flags);
}

static __always_inline __u32 folio_pages(const struct folio *folio)
{
	if (!(folio_flags(folio) >> bpf_core_enum_value(enum pageflags, PG_head) & 1))
		return 1;
	if (bpf_core_field_exists(((struct folio *)0)->_nr_pages))
		return read_field(folio, _nr_pages);
	return read_field(folio, _folio_nr_pages);
}

/* Slots of the tree of a file are folios, nodes (lowest bits 10), or values without data (lowest bit 1). */
static __always_inline bool slot_has_data(__u64 slot)
{
	if (!slot || slot & 3)
		return false;
	return folio_flags((struct folio *)slot) >> bpf_core_enum_value(enum pageflags, PG_uptodate) & 1;
}

/* The node of the lowest level that covers a page, or what stands there instead of it. */
static __always_inline __u64 tree_slot(struct address_space *mapping, __u64 page)
{
	__u64 slot = (__u64)read_field(mapping, i_pages.xa_head);
	bool is_root = true;
	for (int level = 0; level < TREE_LEVELS_MAX && (slot & 3) == 2 && slot > PAGE_BYTES; level++) {
		struct xa_node *node = (struct xa_node *)(slot - 2);
		__u32 shift = read_field(node, shift) & 63;
		if (is_root && page >> shift >= TREE_SLOTS)
			return 0;
		if (shift == 0)
			return slot;
		is_root = false;
		__u64 *slots = (void *)node + bpf_core_field_offset(struct xa_node, slots);
		if (bpf_probe_read_kernel(&slot, sizeof(slot), slots + (page >> shift & (TREE_SLOTS - 1))))
			return 0;
		/* A large folio stands in its first slot; the others name that one. */
		if ((slot & 3) == 2 && slot <= PAGE_BYTES &&
		    bpf_probe_read_kernel(&slot, sizeof(slot), slots + (slot >> 2 & (TREE_SLOTS - 1))))
			return 0;
	}
	/* A file of one page has that in place of a node. */
	return is_root && page ? 0 : slot;
}

/*
 * Narrows a range of pages to the first and the last of them that are in the page cache and hold data. A range that is
 * longer than a window, or does not lie below one node, stays as it is. Returns 0 if none is there. A global function is
 * verified once, and not for each call; it takes the address of the struct address_space as a number.
 */
__weak int narrow_to_data(__u64 mapping, struct page_range *range)
{
	__u64 slots[WINDOW_PAGES_MAX] = {};
	if (!range)
		return 0;
	__u64 first = range->first, pages = range->end - first;
	if (!pages || pages > WINDOW_PAGES_MAX || first / TREE_SLOTS != (range->end - 1) / TREE_SLOTS)
		return 1;
	__u64 node = tree_slot((struct address_space *)mapping, first);
	if ((node & 3) != 2) {
		range->end = first ? range->end : 1; /* a large folio, or the only page of a file */
		range->first_folio = range->last_folio = node;
		return slot_has_data(node);
	}
	__u64 *all_slots = (void *)(node - 2) + bpf_core_field_offset(struct xa_node, slots);
	if (bpf_probe_read_kernel(slots, pages * sizeof(slots[0]), all_slots + first % TREE_SLOTS))
		return 1;
	int found = 0;
	for (__u32 i = 0; i < WINDOW_PAGES_MAX; i++) {
		__u64 slot = slots[i];
		if ((slot & 3) == 2 &&
		    bpf_probe_read_kernel(&slot, sizeof(slot), all_slots + (slot >> 2 & (TREE_SLOTS - 1))))
			continue;
		if (!slot_has_data(slot))
			continue;
		if (!found) {
			range->first = first + i;
			range->first_folio = slot;
		}
		range->end = first + i + 1;
		range->last_folio = slot;
		found = 1;
	}
	return found;
}

/* Since 6.18 a fault maps the whole of a large folio, unless the file ends in it. The flags came with the same version. */
static __always_inline bool maps_whole_folios(void)
{
	return bpf_core_field_exists(((struct folio___since_6_18 *)0)->flags.f);
}

/* Widens a range that was narrowed to all that is mapped with it: folios that end at or before a page. */
static __always_inline void widen_to_folios(struct page_range *range, __u64 limit)
{
	if (!maps_whole_folios() || !range->first_folio)
		return;
	struct folio *folio = (struct folio *)range->first_folio;
	__u64 start = read_field(folio, index);
	if (start < range->first && start + folio_pages(folio) <= limit)
		range->first = start;
	folio = (struct folio *)range->last_folio;
	__u64 end = read_field(folio, index) + folio_pages(folio);
	if (end > range->end && end <= limit)
		range->end = end;
}

#endif /* FLEXTRACE_FOLIO_BPF_H */

/* SPDX-License-Identifier: Apache-2.0 OR BSD-2-Clause */
/*
 * The pages of a completed request or bio -> its BLOCK record, and BLOCK_DATA records of the stretches of files they are.
 *
 * The walk is made at the completion, before the bios end: until then the pages of the cache are locked or under
 * writeback, so that they are where they were. All that has to be kept from the submission is who it was.
 */
#ifndef FLEXTRACE_BLOCK_PIECES_BPF_H
#define FLEXTRACE_BLOCK_PIECES_BPF_H

#include "block_submission.bpf.h"
#include "page_cache.bpf.h"

enum {
	STRETCH_NONE = -1,
	STEPS_MAX = 2048, /* bios and folios of a request; what is beyond has no BLOCK_DATA */
	MAPPING_TAG_MASK = 3, /* low bits of folio->mapping: not a file's mapping */
};

/* The recorder's trace file is not part of the trace. */
const volatile __u32 trace_file_device __weak = 0;
const volatile __u64 trace_file_inode __weak = 0;

/* Who and what a stretch belongs to: neighbours of the same belong to one piece. */
struct owner {
	__u64 cause;
	__u32 thread;
	__u32 process;
	__u32 file;
	__u8 class; /* enum block_data_class */
};

struct walk {
	struct block_record block; /* sent together with the first piece */
	struct block_data_record piece; /* that grows; bytes 0 = none yet */
	struct submission submission; /* of the bio */
	struct owner owner; /* of what was looked at last */
	struct bio_vec *vectors; /* of the bio */
	__u64 bio; /* 0 = none yet */
	__u64 mapping; /* that owner holds for, 0 = none */
	__u64 sector; /* reached */
	__u32 vector; /* reached, in the bio */
	__u32 vector_done; /* bytes of it */
	__u32 left; /* bytes of the bio */
	__u32 bio_flags; /* bi_opf */
	__u32 stretch; /* of the file that owner holds for */
	__u8 single; /* the bio is not part of a request */
	__u8 whole; /* owner holds for all of the bio */
	__u8 sent; /* the BLOCK record and the first piece */
	__u8 is_device; /* the mapping is a block device's */
	__u8 own; /* the recorder's trace file */
};

struct block_event {
	struct block_record block;
	struct block_data_record piece;
};

static __always_inline void send_block(const struct block_record *block)
{
	__u64 now_ns = block->start_ns + block->duration_ns;
	struct block_record *record = reserve_event(sizeof(struct block_record), RECORD_BLOCK, now_ns);
	if (!record)
		return;
	*record = *block;
	submit_event(record);
}

static __always_inline void send_block_and_piece(const struct block_record *block,
						 const struct block_data_record *piece)
{
	__u64 now_ns = block->start_ns + block->duration_ns;
	struct block_event *event = reserve_event(sizeof(struct block_event), RECORD_BLOCK, now_ns);
	if (!event) {
		count_full_ring(RECORD_BLOCK_DATA, now_ns);
		return;
	}
	event->block = *block;
	event->piece = *piece;
	submit_event(event);
}

static __always_inline void send_piece(struct walk *walk)
{
	if (!walk->sent) {
		walk->sent = 1;
		send_block_and_piece(&walk->block, &walk->piece);
		return;
	}
	__u64 now_ns = walk->piece.start_ns + walk->piece.duration_ns;
	struct block_data_record *record = reserve_event(sizeof(struct block_data_record), RECORD_BLOCK_DATA, now_ns);
	if (!record)
		return;
	*record = walk->piece;
	submit_event(record);
}

static __always_inline void begin_piece(struct block_data_record *piece, const struct block_record *block,
					const struct owner *owner, __u64 sector, __u64 offset, __u32 bytes)
{
	piece->kind = RECORD_BLOCK_DATA;
	piece->class = owner->class;
	piece->reserved0[0] = 0;
	piece->reserved0[1] = 0;
	piece->file = owner->file;
	piece->start_ns = block->start_ns;
	piece->duration_ns = block->duration_ns;
	piece->thread = owner->thread;
	piece->process = owner->process;
	piece->device = block->device;
	piece->bytes = bytes;
	piece->sector = sector;
	piece->offset = offset;
	piece->cause = owner->cause;
}

/* Adds a stretch to the piece that ends where it begins, or begins a new one. offset counts only with a file. */
static __always_inline void add_stretch(struct walk *walk, __u64 offset, __u32 bytes)
{
	struct block_data_record *piece = &walk->piece;
	const struct owner *owner = &walk->owner;
	__u64 sector = walk->sector;

	walk->sector += bytes >> SECTOR_SHIFT;
	if (piece->bytes && piece->class == owner->class && piece->file == owner->file &&
	    piece->cause == owner->cause && piece->thread == owner->thread &&
	    (!owner->file || piece->offset + piece->bytes == offset)) {
		piece->bytes += bytes;
		return;
	}
	if (piece->bytes)
		send_piece(walk);
	begin_piece(piece, &walk->block, owner, sector, owner->file ? offset : 0, bytes);
}

static __always_inline void owned_by_submitter(struct walk *walk, __u8 class)
{
	const struct submission *submission = &walk->submission;
	walk->owner = (struct owner){
		.class = class,
		.cause = submission->cause,
		.thread = submission->thread,
		.process = submission->process,
	};
}

static __always_inline void owned_by_nobody(struct walk *walk, __u8 class)
{
	walk->owner = (struct owner){.class = class};
}

/* Decides what can be told without a look at the pages. */
static __always_inline void begin_bio(struct walk *walk)
{
	walk->whole = 1;
	if (walk->submission.direct) {
		owned_by_submitter(walk, DATA_DIRECT);
		walk->owner.file = walk->submission.placed ? walk->submission.file : 0;
	} else if (has_request_flag(walk->bio_flags, __REQ_META)) {
		owned_by_nobody(walk, is_journal_write(walk->bio_flags) ? DATA_JOURNAL : DATA_METADATA);
	} else if (has_request_flag(walk->bio_flags, __REQ_SWAP)) {
		owned_by_nobody(walk, DATA_SWAP);
	} else {
		walk->whole = 0;
	}
}

/* Takes the next bio of the request. Returns false after the last one. */
static __always_inline bool next_bio(struct walk *walk)
{
	struct bio *before = (struct bio *)walk->bio;
	struct bio *bio = BPF_CORE_READ(before, bi_next);
	__u64 key = (__u64)bio;
	if (!bio)
		return false;
	walk->bio = key;
	walk->bio_flags = BPF_CORE_READ(bio, bi_opf);
	walk->left = BPF_CORE_READ(bio, bi_iter.bi_size);
	walk->vector = BPF_CORE_READ(bio, bi_iter.bi_idx);
	walk->vector_done = BPF_CORE_READ(bio, bi_iter.bi_bvec_done);
	walk->vectors = BPF_CORE_READ(bio, bi_io_vec);
	take_merged(&walk->submission, key);
	walk->mapping = 0;
	begin_bio(walk);
	return true;
}

/* Who a stretch of a file belongs to that is written from the cache. */
static __always_inline void find_dirtier(struct walk *walk, __u32 stretch)
{
	struct dirty_key key = {.file = walk->owner.file, .stretch = stretch};
	struct dirtier *dirtier = bpf_map_lookup_elem(&dirtiers, &key);
	walk->stretch = stretch;
	if (!dirtier) {
		/* A block device is mostly written by the file system on it. */
		walk->owner = (struct owner){
			.class = walk->is_device		 ? DATA_METADATA
				 : may_have_forgotten_dirtiers() ? DATA_UNKNOWN
								 : DATA_UNTRACED,
			.file = key.file,
		};
		return;
	}
	walk->owner = (struct owner){
		.class = DATA_WRITEBACK,
		.file = key.file,
		.cause = dirtier->cause,
		.thread = dirtier->thread,
		.process = dirtier->process,
	};
}

static __always_inline bool is_trace_file(const struct inode *inode)
{
	struct super_block *super = BPF_CORE_READ(inode, i_sb);
	return trace_file_inode && BPF_CORE_READ(inode, i_ino) == trace_file_inode &&
	       device_of_inode(inode, super, BPF_CORE_READ(super, s_magic)) == trace_file_device;
}

/* Finds out whom the pages of a mapping belong to, from this offset on. */
static __always_inline void enter_mapping(struct walk *walk, struct address_space *mapping, __u64 offset)
{
	const struct submission *submission = &walk->submission;
	const struct inode *inode = BPF_CORE_READ(mapping, host);
	bool is_read = (walk->bio_flags & REQUEST_OP_MASK) == REQUEST_OP_READ;
	walk->mapping = (__u64)mapping;
	if (is_read && submission->inode == (__u64)inode) {
		owned_by_submitter(walk, DATA_FILL);
		walk->owner.file = submission->file;
		return;
	}
	__u16 mode = mode_of(inode);
	__u32 file = find_inode(inode);
	if (mode != MODE_REGULAR && !file) {
		/* Of a block device that no traced program has open, of directories, of btrfs' trees. */
		owned_by_nobody(walk, DATA_METADATA);
	} else if (!is_read) {
		walk->own |= !submission->traced && is_trace_file(inode);
		owned_by_nobody(walk, file ? DATA_WRITEBACK : DATA_UNTRACED);
		walk->owner.file = file;
		walk->stretch = STRETCH_NONE;
		walk->is_device = mode != MODE_REGULAR;
	} else {
		/* What a control group holds back (blk-throttle) is submitted by a thread of the kernel. */
		if (submission->traced)
			owned_by_submitter(walk, DATA_FILL);
		else
			owned_by_nobody(walk, is_marked(file, offset) ? DATA_FILL : DATA_UNTRACED);
		walk->owner.file = file;
	}
}

/* The inode and offset of a bio that btrfs has made of something else than the pages of its file (compression). */
static __always_inline struct inode *inode_of_btrfs(struct bio *bio, __u64 *offset)
{
	if (!bpf_core_field_exists(((struct btrfs_bio *)NULL)->inode) ||
	    !bpf_core_field_exists(((struct btrfs_bio *)NULL)->file_offset))
		return NULL;
	struct btrfs_bio *around = (void *)bio - bpf_core_field_offset(struct btrfs_bio, bio);
	struct btrfs_inode *inode = BPF_CORE_READ(around, inode);
	/* What stands before a bio can be anything: it is btrfs' if it leads there. */
	if (!inode || BPF_CORE_READ(inode, vfs_inode.i_sb, s_magic) != BTRFS_MAGIC)
		return NULL;
	*offset = BPF_CORE_READ(around, file_offset);
	return &inode->vfs_inode;
}

/* A page of a program that is on its way to or from swap: in the swap cache, or of no mapping yet. */
static __always_inline bool is_swapped(const struct folio *folio)
{
	unsigned long flags = folio_flags(folio);
	if (flags >> bpf_core_enum_value(enum pageflags, PG_swapcache) & 1)
		return true;
	return flags >> bpf_core_enum_value(enum pageflags, PG_swapbacked) & 1 && !BPF_CORE_READ(folio, mapping);
}

/* Decides for all of a bio whose pages are in no page cache. Returns the offset. */
static __always_inline __u64 enter_bio_without_mapping(struct walk *walk, const struct folio *folio)
{
	__u64 offset = 0;
	struct inode *inode = inode_of_btrfs((struct bio *)walk->bio, &offset);
	walk->whole = 1;
	if (inode) {
		struct address_space *mapping = BPF_CORE_READ(inode, i_mapping);
		enter_mapping(walk, mapping, offset);
		if (walk->owner.class == DATA_WRITEBACK)
			find_dirtier(walk, offset / DIRTY_STRETCH_BYTES);
		return offset;
	}
	if (is_swapped(folio))
		owned_by_nobody(walk, DATA_SWAP);
	else if (walk->submission.traced || walk->submission.kernel_thread)
		owned_by_nobody(walk, DATA_UNKNOWN);
	else
		owned_by_nobody(walk, DATA_UNTRACED);
	return 0;
}

/* A position in the pages of a bio: as far as one folio reaches. */
struct place {
	struct folio *folio;
	__u64 offset; /* of the position in the folio */
	__u32 bytes; /* from there on: of the bio, in the folio */
};

static __always_inline bool find_place(const struct walk *walk, struct place *place, __u32 *vector_left)
{
	struct bio_vec vector;
	if (bpf_probe_read_kernel(&vector, sizeof(vector), &walk->vectors[walk->vector]))
		return false;
	*vector_left = vector.bv_len - walk->vector_done;
	__u32 bytes = *vector_left < walk->left ? *vector_left : walk->left;
	/* Pages that are neighbours in memory stand in one vector, though not of one folio. */
	__u32 in_vector = vector.bv_offset + walk->vector_done;
	__u32 page_bytes = bpf_core_type_size(struct page);
	__u64 page = (__u64)vector.bv_page + (in_vector / PAGE_BYTES) * page_bytes;
	place->folio = folio_of((struct page *)page);
	place->offset = (page - (__u64)place->folio) / page_bytes * PAGE_BYTES + in_vector % PAGE_BYTES;
	__u64 left = (__u64)folio_pages(place->folio) * PAGE_BYTES - place->offset;
	place->bytes = bytes < left ? bytes : left;
	return place->bytes > 0;
}

static __always_inline void take_place(struct walk *walk, const struct place *place)
{
	struct folio *folio = place->folio;
	__u64 mapping = (__u64)BPF_CORE_READ(folio, mapping);
	__u32 bytes = place->bytes;
	if (!mapping || mapping & MAPPING_TAG_MASK) {
		__u64 offset = enter_bio_without_mapping(walk, folio);
		add_stretch(walk, offset, walk->left);
		walk->left = 0;
		return;
	}
	__u64 offset = BPF_CORE_READ(folio, index) * PAGE_BYTES + place->offset;
	if (mapping != walk->mapping)
		enter_mapping(walk, (struct address_space *)mapping, offset);
	if (walk->owner.file && writes_data(walk->bio_flags)) {
		__u32 stretch = offset / DIRTY_STRETCH_BYTES;
		__u32 stretch_left = DIRTY_STRETCH_BYTES - offset % DIRTY_STRETCH_BYTES;
		bytes = bytes < stretch_left ? bytes : stretch_left;
		if (stretch != walk->stretch)
			find_dirtier(walk, stretch);
	}
	add_stretch(walk, offset, bytes);
	walk->left -= bytes;
	walk->vector_done += bytes;
}

/*
 * Takes the next folio, or bio if nothing has to be looked up in it. Returns 1 to end the walk.
 *
 * Not static: verified by itself, for every content of the walk, instead of for each way to get here.
 */
__weak int walk_on(struct walk *walk)
{
	if (!walk)
		return 1;
	if (!walk->left && (walk->single || !next_bio(walk)))
		return 1;
	if (!walk->left)
		return 0;
	if (walk->whole) {
		add_stretch(walk, walk->submission.offset, walk->left);
		walk->left = 0;
		return 0;
	}
	struct place place = {};
	__u32 vector_left = 0;
	if (!find_place(walk, &place, &vector_left))
		return 1;
	__u32 left = walk->left;
	take_place(walk, &place);
	if (left - walk->left >= vector_left) {
		walk->vector++;
		walk->vector_done = 0;
	}
	return walk->own;
}

/* The last piece, or the BLOCK record alone. */
__weak int walk_ends(struct walk *walk)
{
	if (!walk)
		return 0;
	if (walk->piece.bytes)
		send_piece(walk);
	else if (!walk->sent)
		send_block(&walk->block);
	return 0;
}

static long walk_step(__u64 step, struct walk **walk)
{
	return walk_on(*walk) ? 1 : 0;
}

/*
 * Walks the bios from the first on, which the caller has entered into the walk with its submission, and sends the records.
 * Sends nothing if the data is the recorder's own, and returns so.
 */
static __always_inline bool send_pieces(struct walk *walk)
{
	begin_bio(walk);
	/* Most requests are one folio. */
	if (!walk_on(walk) && (walk->left || !walk->single))
		bpf_loop(STEPS_MAX, walk_step, &walk, 0);
	if (walk->own)
		return true;
	walk_ends(walk);
	return false;
}

#endif /* FLEXTRACE_BLOCK_PIECES_BPF_H */

// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Folios that traced threads bring into the page cache -> marks, from which missed_bytes of reads are made
 * (page_cache.bpf.h). Folios that they make dirty -> who dirtied which part of a file, what that adds to their account, and
 * IO records of stores to mapped files.
 */
#include "aio.bpf.h"
#include "async_operation.bpf.h"
#include "folio.bpf.h"
#include "mapped_file.bpf.h"
#include "record_mmap.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

enum {
	FOLIO_BITMAPS_MAX = 64, /* a folio of 16 MiB; the largest are of 2 MiB on x86 */
	FOLIO_STRETCHES_MAX = 16,
};

static __always_inline bool is_data_of(const struct inode *inode, __u64 file_pointer)
{
	struct file *file = (struct file *)file_pointer;
	struct address_space *mapping = file ? read_field(file, f_mapping) : NULL;
	return mapping && read_field(mapping, host) == inode;
}

/* Whether the running operation writes this file. */
static __always_inline bool writes_file(const struct task_state *state, const struct inode *inode, __u32 file)
{
	if (state->target_id && is_data_of(inode, state->target_file_pointer))
		return true;
	if (!state->id || state->file != file)
		return false;
	struct async_operation *operation = state->request ? async_operation_at(state->request) : NULL;
	if (operation)
		return operation->kind == RECORD_IO && operation->op == IO_WRITE;
	return state->call <= CALL_DATA_LAST && !call_reads(state->call);
}

/* The state of the thread that runs, with the operation that moves this page of the file; NULL if it is not traced. */
static __always_inline struct task_state *state_at_page(const struct address_space *mapping, __u64 page)
{
	struct task_state *state = running_state();
	if (state && state->call == CALL_IO_SUBMIT) /* read, as a global function takes no pointers to inodes */
		aio_runs_at((__u64)BPF_CORE_READ(mapping, host), page << PAGE_SHIFT);
	return state;
}

static __always_inline __u32 file_of_inode(const struct task_state *state, const struct inode *inode)
{
	if (state->id && state->inode_pointer == (__u64)inode)
		return state->file == FILE_BEYOND ? 0 : state->file;
	__u32 file = find_inode(inode);
	return file ? file : enter_inode_below(state, inode);
}

/* Pages that are to be marked. */
struct marking {
	__u64 first, end;
	__u32 file;
};

/* Sets the marks in the bitmap that is `index` further than that of the first page. */
static long set_marks(__u32 index, void *context)
{
	const struct marking *marking = context;
	struct page_key key = {.file = marking->file, .number = (marking->first >> MARK_SHIFT) + index};
	__u64 base = (__u64)key.number << MARK_SHIFT;
	struct marked_count *count = marked_count_of(marking->file);
	if (base >= marking->end || !count)
		return 1;
	__u64 bits = mark_bits(base, marking->first, marking->end);
	__u64 *marked = bpf_map_lookup_elem(&marks, &key);
	if (!marked) {
		if (!bpf_map_update_elem(&marks, &key, &bits, BPF_NOEXIST)) {
			__sync_fetch_and_add(&count->pages, bits_set(bits));
			return 0;
		}
		/* Another CPU was first. */
		marked = bpf_map_lookup_elem(&marks, &key);
		if (!marked)
			return 0;
	}
	__u64 before = __sync_fetch_and_or(marked, bits);
	__sync_fetch_and_add(&count->pages, bits_set(bits & ~before));
	return 0;
}

/*
 * Every page that is brought in counts as read ahead at first; the read that wanted it takes it at its end. A write brings
 * pages in as well: what it does not overwrite of them it reads, but that is not for a read of the program.
 */
SEC("tp_btf/mm_filemap_add_to_page_cache")
int BPF_PROG(mm_filemap_add_to_page_cache, struct folio *folio)
{
	struct task_state *state = state_at_page(folio->mapping, folio->index);
	if (!state)
		return 0;
	struct inode *inode = folio->mapping->host;
	__u32 file = file_of_inode(state, inode);
	if (!file)
		return 0;
	struct marked_count *count = marked_count_of(file);
	bool written = writes_file(state, inode, file);
	if (!count || (written && count->pages <= 0))
		return 0;
	__u64 first = folio->index, end = first + folio_pages(folio);
	if (written) {
		take_marked(file, first << PAGE_SHIFT, (end - first) << PAGE_SHIFT, end << PAGE_SHIFT);
		return 0;
	}
	/* Nobody takes what a large folio has beyond the end of the file. */
	__u64 file_end = ((__u64)inode->i_size + PAGE_BYTES - 1) >> PAGE_SHIFT;
	struct marking marking = {.first = first, .end = end < file_end ? end : file_end, .file = file};
	if (marking.first >= marking.end)
		return 0;
	if (file == state->file && is_read_by_bios(state, inode))
		note_brought(state, marking.first, marking.end);
	if (first >> MARK_SHIFT == (marking.end - 1) >> MARK_SHIFT)
		set_marks(0, &marking);
	else
		bpf_loop(FOLIO_BITMAPS_MAX, set_marks, &marking, 0);
	return 0;
}

/* The last who dirties a part of a file is the one to whom its writeback is put down. */
static __always_inline void note_dirtier(__u32 file, __u64 first, __u64 end, __u64 cause)
{
	__u64 now = bpf_get_current_pid_tgid();
	struct dirtier dirtier = {.cause = cause, .thread = now, .process = now >> 32};
	for (__u32 i = 0; i < FOLIO_STRETCHES_MAX; i++) {
		__u64 stretch = (first << PAGE_SHIFT) / DIRTY_STRETCH_BYTES + i;
		if (stretch * DIRTY_STRETCH_BYTES >= end << PAGE_SHIFT)
			break;
		struct dirty_key key = {.file = file, .stretch = stretch};
		struct dirtier *known = bpf_map_lookup_elem(&dirtiers, &key);
		/* An entry is changed in place, which costs a third of an update. */
		if (known)
			*known = dirtier;
		else
			enter_dirtier(&key, &dirtier);
	}
}

/*
 * A store to a shared mapping made a clean page dirty: the whole folio, for the kernel keeps only one dirty bit, and
 * stores to its other pages fire nothing from then on. Returns the operation's id.
 */
static __always_inline __u64 send_store(struct task_state *state, __u32 file, struct inode *inode, __u64 first,
					__u64 end)
{
	struct mapped_pages pages = {.file = file, .first = first, .end = end, .id = next_operation_id(state)};
	send_mapped_pages(state, IO_WRITE, &pages, inode);
	return pages.id;
}

/*
 * Whether the thread is in its program, and not in a call or request, or in one that reads and so stores in the memory of its
 * program. The request that began in it last may be in flight still, and the thread in its program again. It may be in a call
 * which is not recorded: of a thread of io_uring, which has no program, or of the 32-bit or x32 kind.
 */
static __always_inline bool is_by_program(const struct task_state *state, __u32 file)
{
	struct task_struct *task = bpf_get_current_task_btf();
	const struct pt_regs *entry = (const struct pt_regs *)bpf_task_pt_regs(task);
	const struct async_operation *request = state->request ? async_operation_at(state->request) : NULL;
	bool reads = request && request->kind == RECORD_IO && request->op == IO_READ;
	bool stores = reads || state->call == CALL_NONE || call_reads(state->call);
	bool is_by_request = request && !reads && request->file == file;
	return stores && !is_by_request && !(task->flags & TASK_IO_WORKER) && !is_in_compat_call(task) &&
	       !is_x32_call(BPF_CORE_READ(entry, orig_ax));
}

/*
 * Fires where a clean folio becomes dirty (folio_account_dirtied), which is where the kernel charges the task for it: once
 * for a folio, whole pages. Every file system with writeback comes by here; tmpfs does not, nor is it charged.
 */
SEC("tp_btf/writeback_dirty_folio")
int BPF_PROG(writeback_dirty_folio, struct folio *folio, struct address_space *mapping)
{
	struct task_state *state = mapping ? state_at_page(mapping, folio->index) : NULL;
	if (!state)
		return 0;
	__u64 first = folio->index, end = first + folio_pages(folio);
	struct account *account = account_of(ACCOUNT_SEEN);
	if (account)
		account->write_bytes += (end - first) << PAGE_SHIFT;
	struct inode *inode = mapping->host;
	__u32 file = file_of_inode(state, inode);
	if (!file)
		return 0;
	__u64 cause = state->id;
	if (state->target_id && is_data_of(inode, state->target_file_pointer))
		cause = state->target_id;
	else if (is_by_program(state, file) || fault_cause((__u64)inode))
		cause = send_store(state, file, inode, first, end);
	note_dirtier(file, first, end, cause);
	return 0;
}

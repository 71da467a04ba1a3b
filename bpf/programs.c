// SPDX-License-Identifier: Apache-2.0
/*
 * Which of the BPF programs a kernel gets: what it offers is looked up in its BTF, never concluded from its version.
 */
#include "programs.h"

#include <assert.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cleanup.h"
#include "json.h"
#include "kernel_btf.h"

enum layer { LAYER_BOTH, LAYER_VFS, LAYER_BLOCK, LAYER_GROUP };

/* What several programs are needed for. */
#define LOSS_ALL "nothing can be recorded"
#define LOSS_VFS "operations on files cannot be recorded"
#define LOSS_BLOCK "block requests cannot be recorded"
#define LOSS_POSITION "where threads share a file position, more offsets are inferred (IO_OFFSET_INFERRED)"
#define LOSS_APPEND "where several append to a file, more offsets are inferred (IO_OFFSET_INFERRED)"
#define LOSS_DIRECT "direct requests of io_uring and io_submit end, in the trace, where the program learns of it"
#define LOSS_URING "io_uring requests are not recorded"
#define LOSS_MAPPED "reads of mapped files are not recorded in full"
#define LOSS_BIO "requests to devices without a request queue (dm, md, zram) are not recorded"
#define LOSS_MERGE "who caused data that joins a waiting request may be unknown"
#define LOSS_SUBMITTER "who submitted a block request, and when, may be unknown"

/*
 * Every program, in the order in which they are attached: what ends a record before what begins one. A program is left out
 * where its tracepoint, or the function that it is to be called from, is missing.
 */
static const struct rule {
	const char *program;
	const char *loss; /* what is lost without it */
	enum layer layer;
	bool required;
	const char *instead_of; /* left out where this tracepoint exists */
	const char *twin; /* of other kernels, for the same: nothing is lost where one of the two exists */
	int parameters; /* of the tracepoint, with the leading void *; 0 = any */
	const char *since; /* Linux version with the tracepoint; NULL = as old as the recorder, or in a module */
	const char *feature; /* of the kernel, that the tracepoint or function comes with */
	bool attached_apart; /* by name */
	bool makes_records; /* a run that the kernel leaves out is a record that may be missing, not a detail of one */
} rules[] = {
	{.program = "iomap_dio_rw_begin", .loss = LOSS_DIRECT, .layer = LAYER_VFS, .since = "6.6"},
	{.program = "contention_end", .loss = LOSS_POSITION, .layer = LAYER_VFS, .since = "5.19"},
	{.program = "mm_filemap_get_pages",
	 .loss = LOSS_POSITION,
	 .layer = LAYER_VFS,
	 .twin = "security_file_permission",
	 .since = "6.11"},
	{.program = "security_file_permission",
	 .loss = LOSS_POSITION,
	 .layer = LAYER_VFS,
	 .instead_of = "mm_filemap_get_pages",
	 .feature = "CONFIG_SECURITY"},
	{.program = "ext4_da_write_begin", .loss = LOSS_APPEND " on ext4", .layer = LAYER_VFS},
	{.program = "ext4_write_begin", .loss = LOSS_APPEND " on ext4", .layer = LAYER_VFS},
	{.program = "xfs_file_buffered_write", .loss = LOSS_APPEND " on xfs", .layer = LAYER_VFS},
	{.program = "io_uring_submit_req", .loss = LOSS_URING, .layer = LAYER_VFS, .twin = "io_uring_submit_sqe"},
	{.program = "io_uring_submit_sqe", .loss = LOSS_URING, .layer = LAYER_VFS, .twin = "io_uring_submit_req"},
	{.program = "io_uring_file_get",
	 .loss = "io_uring requests begin, in the trace, where they were submitted",
	 .layer = LAYER_VFS},
	{.program = "io_uring_queue_async_work",
	 .loss = "what io_uring hands to worker threads may be taken for part of the submitting call",
	 .layer = LAYER_VFS},
	{.program = "mm_filemap_add_to_page_cache",
	 .loss = "which part of a read came from the device (coldFrac) is not recorded",
	 .layer = LAYER_VFS},
	{.program = "writeback_dirty_folio",
	 .loss = "stores to mapped files, and who caused what is written back, are not recorded",
	 .layer = LAYER_VFS},
	{.program = "mm_filemap_fault", .loss = LOSS_MAPPED, .layer = LAYER_VFS, .since = "6.11"},
	{.program = "mm_filemap_map_pages", .loss = LOSS_MAPPED, .layer = LAYER_VFS, .since = "6.11"},
	{.program = "task_newtask",
	 .loss = LOSS_ALL,
	 .required = true,
	 .feature = "CONFIG_TRACEPOINTS",
	 .attached_apart = true},
	{.program = "adopt_target", .loss = LOSS_ALL, .required = true},
	{.program = "collect_accounts", .loss = LOSS_ALL, .required = true},
	{.program = "announce_open_files",
	 .loss = "files that a running process (-p) has open already are recorded only when they are used",
	 .layer = LAYER_VFS},
	{.program = "announce_mapped_files",
	 .loss = "programs and libraries that a running process (-p) has mapped already count as data",
	 .layer = LAYER_VFS},
	{.program = "adopt_group", .loss = "--in-cgroup does not work", .layer = LAYER_GROUP, .required = true},
	{.program = "cgroup_attach_task",
	 .loss = "--in-cgroup does not record tasks that enter the group later",
	 .layer = LAYER_GROUP,
	 .attached_apart = true},
	{.program = "group_newtask",
	 .loss = "--in-cgroup does not record tasks that are started into the group from outside",
	 .layer = LAYER_GROUP,
	 .attached_apart = true},
	{.program = "sched_prepare_exec",
	 .loss = "what execve has read of a program to begin it is not known to be of its file, where that was not opened before",
	 .layer = LAYER_VFS,
	 .since = "6.10"},
	{.program = "sched_process_exec",
	 .loss = LOSS_VFS,
	 .layer = LAYER_VFS,
	 .required = true,
	 .feature = "CONFIG_TRACEPOINTS"},
	{.program = "sched_switch",
	 .loss = "which part of a thread's time between its calls it had a processor is not recorded, and replays only wait in it",
	 .layer = LAYER_VFS,
	 .feature = "CONFIG_TRACEPOINTS"},
	{.program = "sched_waking",
	 .loss = "which thread woke which is not recorded, so that replays keep no such order, and take the time that a thread slept for another one for its own",
	 .layer = LAYER_VFS,
	 .feature = "CONFIG_TRACEPOINTS"},
	{.program = "sched_process_exit", .loss = LOSS_ALL, .required = true, .feature = "CONFIG_TRACEPOINTS"},
	{.program = "block_rq_complete",
	 .loss = LOSS_BLOCK,
	 .layer = LAYER_BLOCK,
	 .required = true,
	 .feature = "CONFIG_BLOCK",
	 .makes_records = true},
	{.program = "block_rq_complete_nested",
	 .loss = "requests that end while the end of another is being recorded are recorded without a response time",
	 .layer = LAYER_BLOCK},
	{.program = "find_ended_requests",
	 .loss = "the last requests of a recording are not recorded if their end was missed",
	 .layer = LAYER_BLOCK},
	{.program = "block_bio_complete", .loss = LOSS_BIO, .layer = LAYER_BLOCK, .makes_records = true},
	{.program = "block_rq_requeue",
	 .loss = "that a device sent a request back is not recorded",
	 .layer = LAYER_BLOCK},
	{.program = "block_rq_merge", .loss = LOSS_MERGE, .layer = LAYER_BLOCK},
	{.program = "block_bio_backmerge", .loss = LOSS_MERGE, .layer = LAYER_BLOCK},
	{.program = "block_bio_frontmerge", .loss = LOSS_MERGE, .layer = LAYER_BLOCK},
	{.program = "block_rq_issue",
	 .loss = LOSS_BLOCK,
	 .layer = LAYER_BLOCK,
	 .required = true,
	 .feature = "CONFIG_BLOCK",
	 .makes_records = true},
	{.program = "block_getrq",
	 .loss = LOSS_SUBMITTER,
	 .layer = LAYER_BLOCK,
	 .instead_of = "block_io_start",
	 .twin = "block_io_start"},
	{.program = "block_io_start", .loss = LOSS_SUBMITTER, .layer = LAYER_BLOCK, .twin = "block_getrq"},
	{.program = "block_bio_queue",
	 .loss = LOSS_BIO "; requests are not linked to the direct I/O behind them",
	 .layer = LAYER_BLOCK},
	{.program = "iomap_dio_complete", .loss = LOSS_DIRECT, .since = "6.6"},
	{.program = "io_uring_complete",
	 .loss = LOSS_URING,
	 .layer = LAYER_VFS,
	 .parameters = 4,
	 .makes_records = true},
	{.program = "io_uring_complete_scalars",
	 .loss = LOSS_URING,
	 .layer = LAYER_VFS,
	 .parameters = 8,
	 .makes_records = true},
	{.program = "io_uring_cqe_overflow",
	 .loss = "io_uring requests that end while their ring is full are not recorded",
	 .layer = LAYER_VFS,
	 .makes_records = true},
	{.program = "sys_exit",
	 .loss = LOSS_VFS,
	 .layer = LAYER_VFS,
	 .required = true,
	 .feature = "CONFIG_HAVE_SYSCALL_TRACEPOINTS"},
	{.program = "sys_enter",
	 .loss = LOSS_VFS,
	 .layer = LAYER_VFS,
	 .required = true,
	 .feature = "CONFIG_HAVE_SYSCALL_TRACEPOINTS"},
};

enum { RULES = sizeof(rules) / sizeof(rules[0]) };

static const char *without_prefix(const char *text, const char *prefix)
{
	size_t bytes = strlen(prefix);
	return strncmp(text, prefix, bytes) ? NULL : text + bytes;
}

/* "tp_btf/NAME" -> NAME; NULL for others. */
static const char *tracepoint_of(const struct bpf_program *program)
{
	return without_prefix(bpf_program__section_name(program), "tp_btf/");
}

/* "fentry/NAME" -> NAME; NULL for others. */
static const char *function_of(const struct bpf_program *program)
{
	return without_prefix(bpf_program__section_name(program), "fentry/");
}

static bool is_iterator(const struct bpf_program *program)
{
	return !tracepoint_of(program) && !function_of(program);
}

static const struct rule *rule_of(const char *program)
{
	const struct rule *rule = rules;
	while (rule < rules + RULES && strcmp(rule->program, program))
		rule++;
	assert(rule < rules + RULES);
	return rule;
}

static bool is_wanted(enum layer layer, const struct programs_wish *wish)
{
	switch (layer) {
	case LAYER_VFS:
		return wish->layer_vfs;
	case LAYER_BLOCK:
		return wish->layer_block;
	case LAYER_GROUP:
		return wish->group;
	default:
		return true;
	}
}

void programs_put_name(const struct bpf_program *program, char *name, size_t room)
{
	const char *section = bpf_program__section_name(program), *own = bpf_program__name(program);
	snprintf(name, room, "%s%s%s", section, is_iterator(program) ? ":" : "", is_iterator(program) ? own : "");
}

/* What becomes of a program, before the kernel is asked to take it. */
static enum program_state state_of(const struct bpf_program *program, const struct kernel_btf *types)
{
	const struct rule *rule = rule_of(bpf_program__name(program));
	const char *tracepoint = tracepoint_of(program), *function = function_of(program);
	const struct btf_type *type = tracepoint ? kernel_btf_tracepoint(types, tracepoint) : NULL;
	if (rule->instead_of && kernel_btf_tracepoint(types, rule->instead_of))
		return PROGRAM_REPLACED;
	if ((tracepoint && !type) || (function && !kernel_btf_has_function(types, function)))
		return rule->twin && kernel_btf_offers(types, rule->twin) ? PROGRAM_FOR_OTHERS : PROGRAM_MISSING;
	return type && rule->parameters && btf_vlen(type) != rule->parameters ? PROGRAM_FOR_OTHERS : PROGRAM_LOADS;
}

void programs_choose(struct bpf_object *object, const struct programs_wish *wish, const struct kernel_btf *types)
{
	struct bpf_program *program;
	bpf_object__for_each_program(program, object)
	{
		bool wanted = is_wanted(rule_of(bpf_program__name(program))->layer, wish);
		bpf_program__set_autoload(program, wanted && state_of(program, types) == PROGRAM_LOADS);
	}
}

int programs_check(struct bpf_object *object, const struct programs_wish *wish, const struct kernel_btf *types)
{
	struct bpf_program *program;
	bpf_object__for_each_program(program, object)
	{
		const struct rule *rule = rule_of(bpf_program__name(program));
		if (!rule->required || !is_wanted(rule->layer, wish) || state_of(program, types) != PROGRAM_MISSING)
			continue;
		fprintf(stderr,
			"flextrace record: this kernel has no tracepoint %s, without which %s: use a kernel built with %s=y (flextrace doctor says what else is missing)\n",
			tracepoint_of(program), rule->loss, rule->feature);
		return -ENOENT;
	}
	return 0;
}

bool programs_is_required(const char *name)
{
	return rule_of(name)->required;
}

bool programs_makes_records(const char *name)
{
	return rule_of(name)->makes_records;
}

int programs_attach(struct programs *programs, struct bpf_object *object, const char *name)
{
	struct bpf_program *program = bpf_object__find_program_by_name(object, name);
	if (!program || !bpf_program__autoload(program) || is_iterator(program))
		return 0;
	assert(programs->link_count < PROGRAMS_MAX);
	struct bpf_link *link = bpf_program__attach(program);
	if (!link)
		return -errno;
	programs->links[programs->link_count++] = link;
	return 0;
}

int programs_try_functions(struct bpf_object *object, const char **refused)
{
	struct bpf_program *program;
	bpf_object__for_each_program(program, object)
	{
		if (!bpf_program__autoload(program) || !function_of(program))
			continue;
		struct bpf_link *link = bpf_program__attach(program);
		if (!link) {
			*refused = bpf_program__name(program);
			return -errno;
		}
		bpf_link__destroy(link);
	}
	return 0;
}

int programs_attach_all(struct programs *programs, struct bpf_object *object)
{
	int error = 0;
	for (int i = 0; !error && i < RULES; i++)
		if (!rules[i].attached_apart)
			error = programs_attach(programs, object, rules[i].program);
	return error;
}

void programs_detach(struct programs *programs)
{
	while (programs->link_count)
		bpf_link__destroy(programs->links[--programs->link_count]);
}

int programs_run_iterator(struct bpf_object *object, const char *name, const struct bpf_map *map,
			  const struct between *between)
{
	struct bpf_program *program = bpf_object__find_program_by_name(object, name);
	if (program && !bpf_program__autoload(program))
		return 0;
	union bpf_iter_link_info walked = {.map.map_fd = map ? bpf_map__fd(map) : 0};
	LIBBPF_OPTS(bpf_iter_attach_opts, options, .link_info = map ? &walked : NULL,
		    .link_info_len = map ? sizeof(walked) : 0);
	struct bpf_link *link = program ? bpf_program__attach_iter(program, &options) : NULL;
	if (!link)
		return program ? -errno : -ENOENT;
	_cleanup_close_ int iterator = bpf_iter_create(bpf_link__fd(link));
	int error = iterator < 0 ? -errno : 0;
	/* A read ends where a byte was written, or with EAGAIN behind a million objects (kernel/bpf/bpf_iter.c). */
	for (char byte; !error;) {
		ssize_t bytes = read(iterator, &byte, sizeof(byte));
		if (!bytes)
			break;
		if (bytes > 0)
			error = between ? between->act(between->context) : 0;
		else if (errno != EAGAIN && errno != EINTR)
			error = -errno;
	}
	bpf_link__destroy(link);
	return error;
}

static const struct {
	const char *word, *text;
} states[] = {
	[PROGRAM_LOADS] = {"loads", "loads"},
	[PROGRAM_MISSING] = {"missing", "left out: this kernel has no such tracepoint or function"},
	[PROGRAM_REPLACED] = {"not needed", "not needed: there is a better tracepoint"},
	[PROGRAM_FOR_OTHERS] = {"not needed", "not needed: for other kernels"},
	[PROGRAM_REFUSED] = {"refused", "left out: this kernel refuses it"},
};

/* After the kernel was asked. */
static enum program_state outcome_of(const struct bpf_program *program, const struct kernel_btf *types)
{
	enum program_state state = state_of(program, types);
	return state == PROGRAM_LOADS && !bpf_program__autoload(program) ? PROGRAM_REFUSED : state;
}

void programs_describe(struct bpf_object *object, const struct programs_wish *wish, const struct kernel_btf *types,
		       FILE *stream)
{
	struct bpf_program *program;
	bpf_object__for_each_program(program, object)
	{
		const struct rule *rule = rule_of(bpf_program__name(program));
		enum program_state state = outcome_of(program, types);
		bool lost = state == PROGRAM_MISSING || state == PROGRAM_REFUSED;
		char name[PROGRAM_NAME_BYTES];
		if (!is_wanted(rule->layer, wish))
			continue;
		programs_put_name(program, name, sizeof(name));
		fprintf(stream, "  %-40s %s%s%s%s\n", name, states[state].text, lost ? " (" : "",
			lost ? rule->loss : "", lost ? ")" : "");
	}
}

static void put_text(FILE *json, const char *name, const char *text)
{
	fprintf(json, ",\"%s\":", name);
	if (text)
		json_string(json, text);
	else
		fputs("null", json);
}

void programs_put(struct bpf_object *object, const struct kernel_btf *types, const struct refusal *refusals,
		  int refusal_count, FILE *json)
{
	static const char *const layers[] = {"both", "vfs", "block", "group"};
	struct bpf_program *program;
	const char *separator = "";
	bpf_object__for_each_program(program, object)
	{
		const char *own = bpf_program__name(program), *error = NULL, *words = NULL;
		const struct rule *rule = rule_of(own);
		char name[PROGRAM_NAME_BYTES];
		for (int i = 0; i < refusal_count; i++) {
			if (strcmp(refusals[i].program, own))
				continue;
			error = strerror(-refusals[i].error);
			words = refusals[i].words;
		}
		programs_put_name(program, name, sizeof(name));
		fprintf(json, "%s{\"name\":", separator);
		json_string(json, name);
		put_text(json, "program", own);
		put_text(json, "layer", layers[rule->layer]);
		put_text(json, "state", states[outcome_of(program, types)].word);
		fprintf(json, ",\"required\":%s", rule->required ? "true" : "false");
		put_text(json, "loss", rule->loss);
		put_text(json, "since", rule->since);
		put_text(json, "feature", rule->feature);
		put_text(json, "error", error);
		put_text(json, "words", words);
		fputc('}', json);
		separator = ",";
	}
}

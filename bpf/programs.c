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
#include "kernel_btf.h"

enum layer { LAYER_BOTH, LAYER_VFS, LAYER_BLOCK, LAYER_GROUP };

/*
 * Programs that need a word; all others belong to the vfs layer, are left out where their tracepoint is missing, and are
 * attached before these. In the order in which they are attached: what ends a record before what begins one.
 */
static const struct rule {
	const char *program;
	enum layer layer;
	bool required;
	const char *instead_of; /* left out where this tracepoint exists */
	int parameters; /* of the tracepoint, with the leading void *; 0 = any */
	const char *feature; /* of the kernel, that the tracepoint comes with */
	bool attached_apart; /* by name */
} rules[] = {
	{.program = "task_newtask", .required = true, .feature = "CONFIG_TRACEPOINTS", .attached_apart = true},
	{.program = "adopt_target", .required = true},
	{.program = "collect_accounts", .required = true},
	{.program = "announce_open_files", .layer = LAYER_VFS},
	{.program = "announce_mapped_files", .layer = LAYER_VFS},
	{.program = "adopt_group", .layer = LAYER_GROUP, .required = true},
	{.program = "cgroup_attach_task", .layer = LAYER_GROUP, .attached_apart = true},
	{.program = "group_newtask", .layer = LAYER_GROUP, .attached_apart = true},
	{.program = "sched_process_exit", .required = true, .feature = "CONFIG_TRACEPOINTS"},
	{.program = "block_rq_complete", .layer = LAYER_BLOCK, .required = true, .feature = "CONFIG_BLOCK"},
	{.program = "block_bio_complete", .layer = LAYER_BLOCK},
	{.program = "block_rq_requeue", .layer = LAYER_BLOCK},
	{.program = "block_rq_merge", .layer = LAYER_BLOCK},
	{.program = "block_bio_backmerge", .layer = LAYER_BLOCK},
	{.program = "block_bio_frontmerge", .layer = LAYER_BLOCK},
	{.program = "block_rq_issue", .layer = LAYER_BLOCK, .required = true, .feature = "CONFIG_BLOCK"},
	{.program = "block_getrq", .layer = LAYER_BLOCK, .instead_of = "block_io_start"},
	{.program = "block_io_start", .layer = LAYER_BLOCK},
	{.program = "block_bio_queue", .layer = LAYER_BLOCK},
	{.program = "iomap_dio_complete"},
	{.program = "io_uring_complete", .layer = LAYER_VFS, .parameters = 4},
	{.program = "io_uring_complete_scalars", .layer = LAYER_VFS, .parameters = 8},
	{.program = "sys_exit", .layer = LAYER_VFS, .required = true, .feature = "CONFIG_HAVE_SYSCALL_TRACEPOINTS"},
	{.program = "sys_enter", .layer = LAYER_VFS, .required = true, .feature = "CONFIG_HAVE_SYSCALL_TRACEPOINTS"},
};

enum { RULES = sizeof(rules) / sizeof(rules[0]) };

/* "tp_btf/NAME" -> NAME; NULL for iterators. */
static const char *tracepoint_of(const struct bpf_program *program)
{
	const char *section = bpf_program__section_name(program);
	return strncmp(section, "tp_btf/", 7) ? NULL : section + 7;
}

static const struct rule *rule_of(const char *program)
{
	static const struct rule optional = {.layer = LAYER_VFS};
	for (int i = 0; i < RULES; i++)
		if (!strcmp(rules[i].program, program))
			return &rules[i];
	return &optional;
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
	snprintf(name, room, "%s%s%s", section, tracepoint_of(program) ? "" : ":", tracepoint_of(program) ? "" : own);
}

int programs_choose(struct bpf_object *object, const struct programs_wish *wish, const struct kernel_btf *types)
{
	struct bpf_program *program;

	bpf_object__for_each_program(program, object)
	{
		const struct rule *rule = rule_of(bpf_program__name(program));
		const char *tracepoint = tracepoint_of(program);
		bool wanted = is_wanted(rule->layer, wish);
		const struct btf_type *type = tracepoint ? kernel_btf_tracepoint(types, tracepoint) : NULL;
		if (wanted && rule->required && tracepoint && !type) {
			fprintf(stderr,
				"flextrace record: this kernel has no tracepoint %s, without which nothing can be "
				"recorded: use a kernel built with %s=y\n",
				tracepoint, rule->feature);
			return -ENOENT;
		}
		bool fits = !tracepoint || (type && (!rule->parameters || btf_vlen(type) == rule->parameters));
		bool replaced = rule->instead_of && kernel_btf_tracepoint(types, rule->instead_of);
		bpf_program__set_autoload(program, wanted && fits && !replaced);
	}
	return 0;
}

bool programs_is_required(const char *name)
{
	return rule_of(name)->required;
}

int programs_attach(struct programs *programs, struct bpf_object *object, const char *name)
{
	struct bpf_program *program = bpf_object__find_program_by_name(object, name);
	if (!program || !bpf_program__autoload(program) || !tracepoint_of(program))
		return 0;
	assert(programs->link_count < PROGRAMS_MAX);
	struct bpf_link *link = bpf_program__attach(program);
	if (!link)
		return -errno;
	programs->links[programs->link_count++] = link;
	return 0;
}

int programs_attach_all(struct programs *programs, struct bpf_object *object)
{
	struct bpf_program *program;
	int error = 0;
	bpf_object__for_each_program(program, object)
	{
		const char *name = bpf_program__name(program);
		if (!error && !rule_of(name)->program)
			error = programs_attach(programs, object, name);
	}
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

int programs_run_iterator(struct bpf_object *object, const char *name)
{
	struct bpf_program *program = bpf_object__find_program_by_name(object, name);
	if (program && !bpf_program__autoload(program))
		return 0;
	struct bpf_link *link = program ? bpf_program__attach_iter(program, NULL) : NULL;
	if (!link)
		return program ? -errno : -ENOENT;
	_cleanup_close_ int iterator = bpf_iter_create(bpf_link__fd(link));
	int error = iterator < 0 ? -errno : 0;
	char ignored[64];
	ssize_t bytes = 0;
	while (!error && (bytes = read(iterator, ignored, sizeof(ignored))) > 0)
		;
	if (bytes < 0)
		error = -errno;
	bpf_link__destroy(link);
	return error;
}

void programs_describe(struct bpf_object *object, const struct programs_wish *wish, const struct kernel_btf *types,
		       FILE *stream)
{
	struct bpf_program *program;
	bpf_object__for_each_program(program, object)
	{
		const struct rule *rule = rule_of(bpf_program__name(program));
		const char *tracepoint = tracepoint_of(program);
		const struct btf_type *type = tracepoint ? kernel_btf_tracepoint(types, tracepoint) : NULL;
		const char *state = "loads";
		char name[PROGRAM_NAME_BYTES];
		if (!is_wanted(rule->layer, wish))
			continue;
		if (tracepoint && !type)
			state = "left out: this kernel has no such tracepoint";
		else if (rule->instead_of && kernel_btf_tracepoint(types, rule->instead_of))
			state = "not needed: there is a better tracepoint";
		else if (type && rule->parameters && btf_vlen(type) != rule->parameters)
			state = "not needed: for other kernels";
		else if (!bpf_program__autoload(program))
			state = "left out: this kernel refuses it";
		programs_put_name(program, name, sizeof(name));
		fprintf(stream, "  %-40s %s\n", name, state);
	}
}

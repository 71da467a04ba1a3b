// SPDX-License-Identifier: Apache-2.0
/*
 * Loads, attaches and detaches the BPF programs.
 */
#include "tracer.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "call_time.h"
#include "cleanup.h"
#include "json.h"
#include "privileges.h"
#include "record.skel.h"
#include "syscall_table.h"

#define KERNEL_TYPES "/sys/kernel/btf/vmlinux"

enum {
	DISKS_LATER = 256, /* that may come while it is recorded */
	LOG_TAIL_BYTES = 1500,
	ADOPTION_PASSES_MAX = 100,
	/* Free entries of a table that pushes out its oldest, which each CPU may keep for itself (LOCAL_FREE_TARGET). */
	FREE_ENTRIES_MAX = 128,
};

/* libbpf explains a failed load at length; its words are kept for the error case only. */
static char *libbpf_words;
static size_t libbpf_words_bytes;

static void forget_words(void)
{
	free(libbpf_words);
	libbpf_words = NULL;
	libbpf_words_bytes = 0;
}

static int keep_words(enum libbpf_print_level level, const char *format, va_list arguments)
{
	if (level == LIBBPF_DEBUG)
		return 0;
	char *line = NULL;
	int bytes = vasprintf(&line, format, arguments);
	if (bytes > 0) {
		char *grown = realloc(libbpf_words, libbpf_words_bytes + bytes + 1);
		if (grown) {
			libbpf_words = grown;
			memcpy(libbpf_words + libbpf_words_bytes, line, bytes + 1);
			libbpf_words_bytes += bytes;
		}
	}
	free(line);
	return bytes;
}

static int explain(const char *what, int error)
{
	char missing[128];
	if (privileges_missing(missing, sizeof(missing))) {
		fprintf(stderr,
			"flextrace record: cannot %s: recording needs the capabilities CAP_BPF and CAP_PERFMON (missing: %s); run it as root (sudo flextrace record ...); flextrace doctor says what else helps\n",
			what, missing);
		return error;
	}
	if (access(KERNEL_TYPES, R_OK)) {
		fprintf(stderr,
			"flextrace record: cannot %s: this kernel has no readable BTF (" KERNEL_TYPES
			"); use a kernel built with CONFIG_DEBUG_INFO_BTF=y; flextrace doctor says more\n",
			what);
		return error;
	}
	fprintf(stderr, "flextrace record: cannot %s: %s%s; flextrace doctor says more\n", what, strerror(-error),
		error == -EPERM ? " (in a container or user namespace, CAP_BPF and CAP_PERFMON of the host are needed)"
				: "");
	/* The end of the verifier's log names the reason. */
	if (libbpf_words)
		fprintf(stderr, "%s",
			libbpf_words + (libbpf_words_bytes > LOG_TAIL_BYTES ? libbpf_words_bytes - LOG_TAIL_BYTES : 0));
	return error;
}

static int make_rings(struct tracer *tracer)
{
	tracer->rings = malloc(tracer->cpu_count * sizeof(*tracer->rings));
	if (!tracer->rings)
		return -ENOMEM;
	for (int cpu = 0; cpu < tracer->cpu_count; cpu++)
		tracer->rings[cpu] = -1;
	for (uint32_t cpu = 0; cpu < (uint32_t)tracer->cpu_count; cpu++) {
		uint64_t bytes = ring_plan_bytes_of(&tracer->ring_plan, cpu);
		tracer->rings[cpu] = bpf_map_create(BPF_MAP_TYPE_RINGBUF, "ring", 0, 0, bytes, NULL);
		if (tracer->rings[cpu] < 0)
			return -errno;
		if (bpf_map_update_elem(bpf_map__fd(tracer->bpf->maps.rings), &cpu, &tracer->rings[cpu], BPF_ANY))
			return -errno;
	}
	return 0;
}

static void fill_constants(const struct tracer *tracer, const struct tracer_settings *settings)
{
	struct record_bpf__rodata *constants = tracer->bpf->rodata;
	int64_t dirtiers_kept = (int64_t)bpf_map__max_entries(tracer->bpf->maps.dirtiers) -
				(int64_t)FREE_ENTRIES_MAX * tracer->cpu_count;
	syscall_table_fill(constants->call_of_syscall);
	constants->recorder_process = getpid();
	constants->dirtiers_kept = dirtiers_kept > 0 ? dirtiers_kept : 0;
	constants->trace_file_device = settings->trace_file_device;
	constants->trace_file_inode = settings->trace_file_inode;
	constants->has_rdonly_cast =
		btf__find_by_name_kind(tracer->types.kernel, "bpf_rdonly_cast", BTF_KIND_FUNC) >= 0;
	constants->wanted_hierarchy = settings->group.hierarchy;
	constants->wanted_group = settings->group.id;
	constants->filter_device = settings->device;
	memcpy(constants->filter_file_devices, settings->file_devices, sizeof(settings->file_devices));
	constants->filter_size_bytes_min = settings->size_bytes_min;
	if (settings->path_prefix) {
		constants->filter_path_prefix_bytes = strlen(settings->path_prefix);
		memcpy(constants->filter_path_prefix, settings->path_prefix, constants->filter_path_prefix_bytes);
	}
}

/*
 * A function that the kernel does not have is looked for in its modules too, which takes CAP_SYS_ADMIN; the libbpf of
 * Debian 12 (1.1) gives up there, although the function is optional. It looks once only: here, where it may fail.
 */
static void look_through_modules(const struct tracer *tracer)
{
	if (tracer->bpf->rodata->has_rdonly_cast)
		return;
	bpf_program__set_attach_target(tracer->bpf->progs.sched_process_exit, 0, "flextrace_looks_for_nothing");
	forget_words();
}

/* The program that libbpf says could not be loaded, to be freed; NULL if it was something else. */
static char *refused_program(void)
{
	static const char words[] = "': failed to load: ";
	char *at = libbpf_words ? strstr(libbpf_words, words) : NULL;
	char *name = at;
	while (name && name > libbpf_words && name[-1] != '\'')
		name--;
	return name ? strndup(name, at - name) : NULL;
}

/* The last line of the verifier's log names the reason, those that count its work aside. To be freed, or NULL. */
static char *verifier_words(void)
{
	static const char end[] = "-- END PROG LOAD LOG --";
	_cleanup_free_ char *log = libbpf_words ? strdup(libbpf_words) : NULL;
	char *rest = log, *last = NULL;
	for (char *line; (line = strsep(&rest, "\n")) && !strstr(line, end);)
		if (*line && strncmp(line, "processed ", 10) && strncmp(line, "libbpf: ", 8))
			last = line;
	return last ? strdup(last) : NULL;
}

static void leave_out_refused(const struct tracer *tracer)
{
	for (int i = 0; i < tracer->refusal_count; i++) {
		struct bpf_program *program =
			bpf_object__find_program_by_name(tracer->bpf->obj, tracer->refusals[i].program);
		if (program)
			bpf_program__set_autoload(program, false);
	}
}

static uint32_t disks_max(void)
{
	uint32_t count = DISKS_LATER;
	_cleanup_closedir_ DIR *disks = opendir("/sys/block");
	while (disks && readdir(disks))
		count++;
	return count;
}

/* Whether the kernel takes a program that walks objects and does nothing. 0 or a negative errno. */
static int try_walk(const struct tracer *tracer, const char *iterator)
{
	static const struct bpf_insn nothing[] = {{.code = BPF_ALU64 | BPF_MOV | BPF_K}, {.code = BPF_JMP | BPF_EXIT}};
	LIBBPF_OPTS(bpf_prog_load_opts, options, .expected_attach_type = BPF_TRACE_ITER,
		    .attach_btf_id = btf__find_by_name_kind(tracer->types.kernel, iterator, BTF_KIND_FUNC));
	_cleanup_close_ int program = bpf_prog_load(BPF_PROG_TYPE_TRACING, "nothing", "GPL", nothing,
						    sizeof(nothing) / sizeof(*nothing), &options);
	return program < 0 ? program : 0;
}

/* Some kernels let programs walk tasks, but no maps: they are asked first, as their answer has all be loaded anew. */
static int try_map_iterator(const struct tracer *tracer)
{
	if (!bpf_program__autoload(tracer->bpf->progs.find_ended_requests) || try_walk(tracer, "bpf_iter_task"))
		return 0;
	return try_walk(tracer, "bpf_iter_bpf_map_elem") == -EPERM ? -EPERM : 0;
}

/* 0; -EAGAIN if the kernel refused a program that is left out the next time; or another negative errno. */
static int try_to_load(struct tracer *tracer, const struct tracer_settings *settings)
{
	/* Where no name is given, libbpf looks for types in modules too, and fails if it may not. */
	LIBBPF_OPTS(bpf_object_open_opts, open_options,
		    .btf_custom_path = privileges_reach_modules() ? NULL : KERNEL_TYPES);
	const char *unattached;
	forget_words();
	tracer->bpf = record_bpf__open_opts(&open_options);
	if (!tracer->bpf)
		return -errno;
	fill_constants(tracer, settings);
	if (settings->files_max)
		bpf_map__set_max_entries(tracer->bpf->maps.file_ids, settings->files_max);
	bpf_map__set_max_entries(tracer->bpf->maps.device_totals, disks_max());
	look_through_modules(tracer);
	int error = settings->survey ? 0 : programs_check(tracer->bpf->obj, &settings->wish, &tracer->types);
	if (error)
		return error;
	programs_choose(tracer->bpf->obj, &settings->wish, &tracer->types);
	leave_out_refused(tracer);
	_cleanup_free_ char *refused = NULL;
	if ((error = try_map_iterator(tracer)))
		refused = strdup(bpf_program__name(tracer->bpf->progs.find_ended_requests));
	else if ((error = record_bpf__load(tracer->bpf)))
		refused = refused_program();
	else if ((error = programs_try_functions(tracer->bpf->obj, &unattached)))
		refused = strdup(unattached);
	if (!refused || tracer->refusal_count == REFUSALS_MAX || (!settings->survey && programs_is_required(refused)))
		return error;
	if (!settings->survey)
		fprintf(stderr,
			"flextrace record: warning: this kernel refuses the program %s (%s): going on without it (flextrace doctor says what is lost)\n",
			refused, strerror(-error));
	tracer->refusals[tracer->refusal_count++] =
		(struct refusal){.program = strdup(refused), .error = error, .words = verifier_words()};
	record_bpf__destroy(tracer->bpf);
	tracer->bpf = NULL;
	return -EAGAIN;
}

int tracer_init(struct tracer *tracer, const struct tracer_settings *settings)
{
	*tracer = (struct tracer){.cpu_count = libbpf_num_possible_cpus()};
	const char *what = "load the BPF programs";
	char missing[128];
	libbpf_set_print(keep_words);
	int error = ring_plan_make(&tracer->ring_plan, tracer->cpu_count, settings->ring_bytes);
	if (!error)
		error = kernel_btf_init(&tracer->types, privileges_reach_modules());
	/* A kernel that refuses everything for want of privilege is not asked program by program. */
	if (!error && privileges_missing(missing, sizeof(missing)))
		error = -EPERM;
	if (!error)
		do
			error = try_to_load(tracer, settings);
		while (error == -EAGAIN);
	if (!error && !settings->survey) {
		what = "make the ring buffers (a smaller --ring-bytes takes less memory)";
		error = make_rings(tracer);
	}
	if (error) {
		if (error != -ENOENT || !tracer->bpf)
			explain(what, error);
		tracer_deinit(tracer);
	}
	return error;
}

int tracer_attach(struct tracer *tracer)
{
	/* First inheritance, then adoption, so that no child of an adopted task slips through. */
	static const char *const births[] = {"task_newtask", "cgroup_attach_task", "group_newtask"};
	struct bpf_object *object = tracer->bpf->obj;
	tracer->call_ns = call_time_ns();
	int error = programs_attach_all(&tracer->programs, object);
	for (size_t i = 0; !error && i < sizeof(births) / sizeof(births[0]); i++)
		error = programs_attach(&tracer->programs, object, births[i]);
	uint64_t call_ns = call_time_ns();
	tracer->call_cost_ns = call_ns > tracer->call_ns ? call_ns - tracer->call_ns : 0;
	return error ? explain("attach the BPF programs", error) : 0;
}

/* Ends a round of adoptions: takes in the tasks of the group, if there is one, and announces what those new have. */
static int adopt_group(struct tracer *tracer, const struct between *between)
{
	static const char *const announcers[] = {"announce_open_files", "announce_mapped_files"};
	/* Read before: the other threads of a process that comes meanwhile are for the next round. */
	tracer->adoptions = tracer->bpf->bss->adoptions;
	int error = programs_run_iterator(tracer->bpf->obj, "adopt_group", NULL, NULL);
	tracer->bpf->bss->adoption_rounds++;
	for (size_t i = 0; !error && i < sizeof(announcers) / sizeof(announcers[0]); i++)
		error = programs_run_iterator(tracer->bpf->obj, announcers[i], NULL, between);
	return error;
}

/* Tracing of a task begins with all programs in place, at the moment at which what it was charged so far is read. */
int tracer_adopt(struct tracer *tracer, pid_t target, const struct between *between)
{
	int error = 0;
	tracer->bpf->bss->target_process = target;
	/* A child that was born before its parent was taken in can have the lower number, and the walk be past it. */
	for (int pass = 0; target && !error && pass < ADOPTION_PASSES_MAX; pass++) {
		uint64_t before = tracer->bpf->bss->adoptions;
		error = programs_run_iterator(tracer->bpf->obj, "adopt_target", NULL, NULL);
		if (tracer->bpf->bss->adoptions == before)
			break;
	}
	if (!error)
		error = adopt_group(tracer, between);
	return error ? explain("look through the tasks", error) : 0;
}

int tracer_adopt_arrivals(struct tracer *tracer, const struct between *between)
{
	return tracer->bpf->bss->adoptions == tracer->adoptions ? 0 : adopt_group(tracer, between);
}

void tracer_set_alarm(const struct tracer *tracer, enum alarm alarm)
{
	tracer->bpf->bss->alarm = alarm;
	atomic_thread_fence(memory_order_seq_cst);
}

enum alarm tracer_alarm(const struct tracer *tracer)
{
	return tracer->bpf->bss->alarm;
}

void tracer_find_ended_requests(struct tracer *tracer)
{
	programs_run_iterator(tracer->bpf->obj, "find_ended_requests", tracer->bpf->maps.requests, NULL);
}

/*
 * Until those are through that were running when they were detached, and may not yet have sent what they had begun. The
 * kernel waits for them where somebody changes a map of maps, here to what it is (maybe_wait_bpf_programs).
 */
static void wait_for_programs(const struct tracer *tracer)
{
	uint32_t cpu = 0;
	bpf_map_update_elem(bpf_map__fd(tracer->bpf->maps.rings), &cpu, &tracer->rings[cpu], BPF_ANY);
}

void tracer_detach(struct tracer *tracer)
{
	programs_run_iterator(tracer->bpf->obj, "collect_accounts", NULL, NULL);
	programs_detach(&tracer->programs);
	wait_for_programs(tracer);
}

void tracer_put_programs(const struct tracer *tracer, FILE *json)
{
	struct bpf_program *program;
	const char *separator = "";
	bpf_object__for_each_program(program, tracer->bpf->obj)
	{
		if (!bpf_program__autoload(program))
			continue;
		char name[PROGRAM_NAME_BYTES];
		programs_put_name(program, name, sizeof(name));
		fputs(separator, json);
		json_string(json, name);
		separator = ",";
	}
}

void tracer_describe(const struct tracer *tracer, const struct programs_wish *wish, FILE *stream)
{
	programs_describe(tracer->bpf->obj, wish, &tracer->types, stream);
}

void tracer_put_survey(const struct tracer *tracer, FILE *json)
{
	programs_put(tracer->bpf->obj, &tracer->types, tracer->refusals, tracer->refusal_count, json);
}

void tracer_deinit(struct tracer *tracer)
{
	programs_detach(&tracer->programs);
	for (int cpu = 0; tracer->rings && cpu < tracer->cpu_count; cpu++)
		if (tracer->rings[cpu] >= 0)
			close(tracer->rings[cpu]);
	free(tracer->rings);
	record_bpf__destroy(tracer->bpf);
	kernel_btf_deinit(&tracer->types);
	for (int i = 0; i < tracer->refusal_count; i++) {
		free(tracer->refusals[i].program);
		free(tracer->refusals[i].words);
	}
	forget_words();
}

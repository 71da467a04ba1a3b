// SPDX-License-Identifier: Apache-2.0
/*
 * Loads, attaches and detaches the BPF programs.
 */
#include "tracer.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cleanup.h"
#include "record.skel.h"
#include "syscall_table.h"

enum { LOG_TAIL_BYTES = 1500 };

/* libbpf explains a failed load at length; its words are kept for the error case only. */
static char *libbpf_words;
static size_t libbpf_words_bytes;

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
	if (error == -EPERM || error == -EACCES) {
		fprintf(stderr,
			"flextrace record: cannot %s: recording needs the capabilities CAP_BPF and CAP_PERFMON; "
			"run it as root (sudo flextrace record ...)\n",
			what);
		return error;
	}
	if (access("/sys/kernel/btf/vmlinux", R_OK)) {
		fprintf(stderr,
			"flextrace record: cannot %s: this kernel has no readable BTF (/sys/kernel/btf/vmlinux); "
			"use a kernel built with CONFIG_DEBUG_INFO_BTF=y\n",
			what);
		return error;
	}
	fprintf(stderr, "flextrace record: cannot %s: %s\n", what, strerror(-error));
	/* The end of the verifier's log names the reason. */
	if (libbpf_words)
		fprintf(stderr, "%s",
			libbpf_words + (libbpf_words_bytes > LOG_TAIL_BYTES ? libbpf_words_bytes - LOG_TAIL_BYTES : 0));
	return error;
}

static int make_rings(struct tracer *tracer, uint64_t ring_bytes)
{
	tracer->rings = malloc(tracer->cpu_count * sizeof(*tracer->rings));
	if (!tracer->rings)
		return -ENOMEM;
	for (int cpu = 0; cpu < tracer->cpu_count; cpu++)
		tracer->rings[cpu] = -1;
	for (uint32_t cpu = 0; cpu < (uint32_t)tracer->cpu_count; cpu++) {
		tracer->rings[cpu] = bpf_map_create(BPF_MAP_TYPE_RINGBUF, "ring", 0, 0, ring_bytes, NULL);
		if (tracer->rings[cpu] < 0)
			return -errno;
		if (bpf_map_update_elem(bpf_map__fd(tracer->bpf->maps.rings), &cpu, &tracer->rings[cpu], BPF_ANY))
			return -errno;
	}
	return 0;
}

/* What a kernel offers is tried, never concluded from its version. */
static bool has_tracepoint(const char *name)
{
	char type[128];
	snprintf(type, sizeof(type), "btf_trace_%s", name);
	struct btf *kernel = btf__load_vmlinux_btf();
	bool found = kernel && btf__find_by_name_kind(kernel, type, BTF_KIND_TYPEDEF) >= 0;
	btf__free(kernel);
	return found;
}

static void choose_programs(struct tracer *tracer, const struct tracer_settings *settings)
{
	struct record_bpf *bpf = tracer->bpf;
	bpf_program__set_autoload(bpf->progs.sys_enter, settings->layer_vfs);
	bpf_program__set_autoload(bpf->progs.sys_exit, settings->layer_vfs);
	/* These make offsets on shared positions exact; without them more are inferred. The file systems' are in the
	 * kernel's own BTF only where they are built in. */
	struct bpf_program *optional[] = {bpf->progs.contention_end, bpf->progs.mm_filemap_get_pages,
					  bpf->progs.ext4_da_write_begin, bpf->progs.ext4_write_begin,
					  bpf->progs.xfs_file_buffered_write};
	for (size_t i = 0; i < sizeof(optional) / sizeof(optional[0]); i++)
		bpf_program__set_autoload(optional[i],
					  settings->layer_vfs && has_tracepoint(bpf_program__name(optional[i])));
	bool io_start = settings->layer_block && has_tracepoint("block_io_start");
	bpf_program__set_autoload(bpf->progs.block_io_start, io_start);
	/* Where requests are announced at their start, their insertion adds nothing. */
	bpf_program__set_autoload(bpf->progs.block_rq_insert, settings->layer_block && !io_start);
	bpf_program__set_autoload(bpf->progs.block_rq_issue, settings->layer_block);
	bpf_program__set_autoload(bpf->progs.block_rq_requeue, settings->layer_block);
	bpf_program__set_autoload(bpf->progs.block_rq_complete, settings->layer_block);
}

int tracer_init(struct tracer *tracer, const struct tracer_settings *settings)
{
	*tracer = (struct tracer){.cpu_count = libbpf_num_possible_cpus()};
	libbpf_set_print(keep_words);
	tracer->bpf = record_bpf__open();
	if (!tracer->bpf)
		return explain("open the BPF programs", -errno);
	syscall_table_fill(tracer->bpf->rodata->call_of_syscall);
	tracer->bpf->rodata->recorder_process = getpid();
	tracer->bpf->rodata->trace_file_device = settings->trace_file_device;
	tracer->bpf->rodata->trace_file_inode = settings->trace_file_inode;
	choose_programs(tracer, settings);
	int error = record_bpf__load(tracer->bpf);
	if (!error)
		error = make_rings(tracer, settings->ring_bytes);
	if (error) {
		explain("load the BPF programs", error);
		tracer_deinit(tracer);
	}
	return error;
}

/* Reading the iterator to its end runs the program for every task. */
static int adopt(struct tracer *tracer, pid_t target)
{
	tracer->bpf->bss->target_process = target;
	struct bpf_link *link = bpf_program__attach_iter(tracer->bpf->progs.adopt_target, NULL);
	if (!link)
		return -errno;
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

int tracer_attach(struct tracer *tracer, pid_t target)
{
	struct record_bpf *bpf = tracer->bpf;
	const struct {
		struct bpf_program *program;
		struct bpf_link **link;
	} attached[] = {
		/* What ends a record is attached before what begins one. */
		{bpf->progs.block_rq_complete, &bpf->links.block_rq_complete},
		{bpf->progs.block_rq_requeue, &bpf->links.block_rq_requeue},
		{bpf->progs.block_rq_issue, &bpf->links.block_rq_issue},
		{bpf->progs.block_rq_insert, &bpf->links.block_rq_insert},
		{bpf->progs.block_io_start, &bpf->links.block_io_start},
		{bpf->progs.contention_end, &bpf->links.contention_end},
		{bpf->progs.mm_filemap_get_pages, &bpf->links.mm_filemap_get_pages},
		{bpf->progs.ext4_da_write_begin, &bpf->links.ext4_da_write_begin},
		{bpf->progs.ext4_write_begin, &bpf->links.ext4_write_begin},
		{bpf->progs.xfs_file_buffered_write, &bpf->links.xfs_file_buffered_write},
		{bpf->progs.sys_exit, &bpf->links.sys_exit},
		{bpf->progs.sys_enter, &bpf->links.sys_enter},
	};

	/* First inheritance, then adoption: no child can slip through in between. */
	bpf->links.task_newtask = bpf_program__attach(bpf->progs.task_newtask);
	int error = bpf->links.task_newtask ? adopt(tracer, target) : -errno;
	for (size_t i = 0; !error && i < sizeof(attached) / sizeof(attached[0]); i++) {
		if (!bpf_program__autoload(attached[i].program))
			continue;
		*attached[i].link = bpf_program__attach(attached[i].program);
		if (!*attached[i].link)
			error = -errno;
	}
	return error ? explain("attach the BPF programs", error) : 0;
}

void tracer_detach(struct tracer *tracer)
{
	record_bpf__detach(tracer->bpf);
}

int tracer_losses(const struct tracer *tracer, uint32_t kind, struct loss *of_cpu)
{
	return bpf_map_lookup_elem(bpf_map__fd(tracer->bpf->maps.losses), &kind, of_cpu) ? -errno : 0;
}

uint64_t tracer_skips(const struct tracer *tracer, enum skip skip)
{
	uint64_t sum = 0;
	uint32_t key = skip;
	_cleanup_free_ uint64_t *of_cpu = calloc(tracer->cpu_count, sizeof(*of_cpu));
	if (of_cpu && !bpf_map_lookup_elem(bpf_map__fd(tracer->bpf->maps.skips), &key, of_cpu))
		for (int cpu = 0; cpu < tracer->cpu_count; cpu++)
			sum += of_cpu[cpu];
	return sum;
}

const char *tracer_attached(const struct tracer *tracer)
{
	static char names[512];
	struct bpf_program *program;
	names[0] = '\0';
	bpf_object__for_each_program(program, tracer->bpf->obj)
	{
		if (!bpf_program__autoload(program))
			continue;
		size_t used = strlen(names);
		snprintf(names + used, sizeof(names) - used, "%s%s:%s", used ? "," : "",
			 bpf_program__section_name(program), bpf_program__name(program));
	}
	return names;
}

void tracer_deinit(struct tracer *tracer)
{
	for (int cpu = 0; tracer->rings && cpu < tracer->cpu_count; cpu++)
		if (tracer->rings[cpu] >= 0)
			close(tracer->rings[cpu]);
	free(tracer->rings);
	record_bpf__destroy(tracer->bpf);
	free(libbpf_words);
	libbpf_words = NULL;
	libbpf_words_bytes = 0;
}

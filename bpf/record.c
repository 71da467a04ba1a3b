// SPDX-License-Identifier: Apache-2.0
/*
 * Records an application: options -> target -> BPF programs -> rings -> trace file.
 */
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>

#include "cleanup.h"
#include "drain.h"
#include "metadata.h"
#include "options.h"
#include "target.h"
#include "tracer.h"
#include "writer.h"

/* Between two rounds. At 10^6 events per second on a CPU its default ring fills in 230 ms. */
enum { POLL_INTERVAL_MS = 5 };

static const char *const kind_names[] = {
	[RECORD_IO] = "IO",	  [RECORD_FILEOP] = "FILEOP", [RECORD_FILE] = "FILE", [RECORD_TASK] = "TASK",
	[RECORD_BLOCK] = "BLOCK", [RECORD_GAP] = "GAP",	      [RECORD_TEXT] = "TEXT",
};

static int fail(const char *what, const char *object, int error, const char *remedy)
{
	fprintf(stderr, "flextrace record: cannot %s %s: %s%s\n", what, object, strerror(-error), remedy);
	return EXIT_FAILED;
}

static void default_output(const struct options *options, char *path, size_t room)
{
	char date[32], name[64];
	time_t now = time(NULL);
	strftime(date, sizeof(date), "%Y%m%d-%H%M%S", localtime(&now));
	if (options->command) {
		_cleanup_free_ char *command = strdup(options->command[0]);
		snprintf(name, sizeof(name), "%s", command ? basename(command) : "command");
	} else {
		snprintf(name, sizeof(name), "process-%d", options->process);
	}
	snprintf(path, room, "%s-%s.iotrace", name, date);
}

/* Ctrl-C from a terminal reaches the command too; a signal sent to the recorder alone is handed on. */
static bool stop_wanted(int signals, const struct target *target, int *signal_count)
{
	struct signalfd_siginfo info;
	if (read(signals, &info, sizeof(info)) != sizeof(info))
		return false;
	if (!target->is_command || ++*signal_count > 1)
		return true;
	if (info.ssi_code != SI_KERNEL)
		kill(target->process, info.ssi_signo);
	return false;
}

/* Drains until the target has ended or the user has had enough. 0 or a negative errno. */
static int record_until_end(struct drain *drain, const struct target *target, int signals)
{
	struct pollfd polled[] = {{.fd = target->process_descriptor, .events = POLLIN},
				  {.fd = signals, .events = POLLIN}};
	int signal_count = 0;

	for (;;) {
		int ready = poll(polled, 2, POLL_INTERVAL_MS);
		if (ready < 0 && errno != EINTR)
			return -errno;
		int error = drain_round(drain);
		if (error)
			return error;
		if (ready > 0 && polled[0].revents)
			return 0;
		if (ready > 0 && polled[1].revents && stop_wanted(signals, target, &signal_count))
			return 0;
	}
}

/* Enters the losses into the header and one GAP record per CPU and kind. Their sum, or a negative errno. */
static int64_t write_losses(const struct tracer *tracer, struct writer *writer)
{
	int64_t sum = 0;
	_cleanup_free_ struct loss *of_cpu = calloc(tracer->cpu_count, sizeof(*of_cpu));
	if (!of_cpu)
		return -ENOMEM;
	for (uint32_t kind = 1; kind < TRACE_KINDS_MAX; kind++) {
		int error = tracer_losses(tracer, kind, of_cpu);
		if (error)
			return error;
		for (int cpu = 0; cpu < tracer->cpu_count; cpu++) {
			if (!of_cpu[cpu].count)
				continue;
			struct gap_record gap = {
				.kind = RECORD_GAP,
				.lost_kind = kind,
				.cpu = cpu,
				.start_ns = of_cpu[cpu].first_ns,
				.duration_ns = of_cpu[cpu].last_ns - of_cpu[cpu].first_ns,
				.lost_count = of_cpu[cpu].count,
			};
			writer_append(writer, &gap);
			writer->header.lost[kind] += gap.lost_count;
			sum += gap.lost_count;
		}
	}
	return sum;
}

static void say_result(const struct options *options, const struct tracer *tracer, const char *path,
		       const struct trace_header *header, int64_t lost)
{
	if (lost) {
		fprintf(stderr, "flextrace record: WARNING: %lld RECORDS WERE LOST (", (long long)lost);
		const char *separator = "";
		for (size_t kind = 0; kind < sizeof(kind_names) / sizeof(kind_names[0]); kind++) {
			if (!header->lost[kind])
				continue;
			fprintf(stderr, "%s%llu %s", separator, (unsigned long long)header->lost[kind],
				kind_names[kind]);
			separator = ", ";
		}
		fprintf(stderr,
			"): numbers made from this trace are lower bounds. Give a larger --ring-bytes than %llu.\n",
			(unsigned long long)options->ring_bytes);
	}
	uint64_t unrecorded = tracer_skips(tracer, SKIP_UNRECORDED_CALL);
	if (unrecorded)
		fprintf(stderr,
			"flextrace record: warning: %llu calls moved data in ways that are not recorded yet (sendfile, "
			"splice, "
			"copy_file_range, io_submit, io_uring): uniqueBytes and the request counts are lower bounds\n",
			(unsigned long long)unrecorded);
	if (!options->quiet)
		fprintf(stderr,
			"flextrace record: %llu data operations, %llu file operations, %llu block requests, %lld lost: "
			"%s\n"
			"next: flextrace characterize %s\n",
			(unsigned long long)header->count[RECORD_IO], (unsigned long long)header->count[RECORD_FILEOP],
			(unsigned long long)header->count[RECORD_BLOCK], (long long)lost, path, path);
}

/* From a target that waits to a closed trace. The exit code. */
static int record(const struct options *options, const char *path, struct target *target, struct tracer *tracer,
		  struct writer *writer, int signals)
{
	struct drain drain;
	int error = drain_init(&drain, tracer->rings, tracer->cpu_count, writer);
	if (error)
		return fail("read", "the ring buffers", error, "");
	error = tracer_attach(tracer, target->process);
	if (!error) {
		writer_mark_start(writer);
		error = target_release(target);
		if (error)
			fail("start", options->command[0], error, options->cgroup ? ", or its control group" : "");
	}
	if (error) {
		drain_deinit(&drain);
		return EXIT_FAILED;
	}
	if (!options->quiet)
		fprintf(stderr, "flextrace record: recording %s; Ctrl-C ends it\n",
			options->command ? options->command[0] : "the process");
	error = record_until_end(&drain, target, signals);
	writer_mark_end(writer);
	tracer_detach(tracer);
	int finish_error = drain_finish(&drain);
	error = error ? error : finish_error;

	int exit_status = target_exit_status(target);
	int64_t lost = write_losses(tracer, writer);
	_cleanup_free_ char *json = metadata_make(options, tracer, &drain, exit_status);
	int close_error = writer_deinit(writer, json ? json : "{}");
	drain_deinit(&drain);
	error = error ? error : close_error;
	if (error || lost < 0)
		return fail("finish trace", path, error ? error : (int)lost,
			    "; it is marked incomplete and can be read up to its last whole record");
	say_result(options, tracer, path, &writer->header, lost);
	return exit_status ? exit_status : lost ? EXIT_NOT_TRUSTWORTHY : EXIT_OK;
}

static int make_signals(void)
{
	sigset_t stop;
	sigemptyset(&stop);
	sigaddset(&stop, SIGINT);
	sigaddset(&stop, SIGTERM);
	sigprocmask(SIG_BLOCK, &stop, NULL);
	return signalfd(-1, &stop, SFD_CLOEXEC);
}

int main(int argc, char **argv)
{
	struct options options;
	struct target target;
	struct tracer tracer;
	struct writer writer;
	struct stat trace_file;
	char path[PATH_MAX];

	options_parse(&options, argc, argv);
	if (options.output)
		snprintf(path, sizeof(path), "%s", options.output);
	else
		default_output(&options, path, sizeof(path));
	_cleanup_close_ int signals = make_signals();

	int error = options.command ? target_init_command(&target, options.command, options.cgroup)
				    : target_init_process(&target, options.process);
	if (error) {
		char process[32];
		snprintf(process, sizeof(process), "process %d", options.process);
		return fail(options.command ? "start" : "record", options.command ? options.command[0] : process, error,
			    "");
	}
	_cleanup_free_ char *json = metadata_make(&options, NULL, NULL, 0);
	error = writer_init(&writer, path, options.force, json ? json : "{}");
	if (error) {
		target_deinit(&target);
		fail("make trace", path, error, error == -EEXIST ? ": choose another name or give --force" : "");
		return error == -EEXIST ? EXIT_USAGE : EXIT_FAILED;
	}
	int exit_code = EXIT_FAILED;
	if (!fstat(writer.descriptor, &trace_file)) {
		struct tracer_settings settings = {
			.layer_vfs = options.layer_vfs,
			.layer_block = options.layer_block,
			.ring_bytes = options.ring_bytes,
			.trace_file_device = major(trace_file.st_dev) << 20 | minor(trace_file.st_dev),
			.trace_file_inode = trace_file.st_ino,
		};
		if (!tracer_init(&tracer, &settings)) {
			exit_code = record(&options, path, &target, &tracer, &writer, signals);
			tracer_deinit(&tracer);
		} else {
			unlink(path);
		}
	}
	target_deinit(&target);
	return exit_code;
}

// SPDX-License-Identifier: Apache-2.0
/*
 * Records an application: options -> target -> BPF programs -> rings -> trace file.
 */
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>

#include "cleanup.h"
#include "fail.h"
#include "plan.h"
#include "privileges.h"
#include "session.h"
#include "standard_streams.h"
#include "survey.h"

static void default_output(const struct options *options, char *path, size_t room)
{
	char date[32], name[64];
	time_t now = time(NULL);
	strftime(date, sizeof(date), "%Y%m%d-%H%M%S", localtime(&now));
	const char *object = options->command ? options->command[0] : options->group_path;
	if (object) {
		_cleanup_free_ char *copy = strdup(object);
		snprintf(name, sizeof(name), "%s", copy ? basename(copy) : "command");
	} else {
		snprintf(name, sizeof(name), "process-%d", options->process);
	}
	snprintf(path, room, "%s-%s.iotrace", name, date);
}

static int init_target(struct session *session)
{
	const struct options *options = session->options;
	int error = options->command ? target_init_command(&session->target, options->command, options->cgroup)
				     : target_init_process(&session->target, options->process);
	if (error) {
		char process[32];
		/* Which of the two it is differs between kernels. */
		bool is_thread = !options->command && (error == -EINVAL || error == -ENOENT);
		snprintf(process, sizeof(process), "process %d", options->process);
		fail(options->command ? "start" : "record", options->command ? options->command[0] : process, error,
		     is_thread ? ": it is a thread; give the number of its process (Tgid in /proc/NUMBER/status)" : "");
	}
	return error;
}

static int init_tracer(struct session *session, const struct stat *trace_file)
{
	const struct options *options = session->options;
	struct tracer_settings settings = {
		.wish = session->wish,
		.ring_bytes = options->ring_bytes,
		.files_max = options->files_max,
		.group = options->group,
		.path_prefix = *options->path_prefix ? options->path_prefix : NULL,
		.device = options->device,
		.size_bytes_min = options->size_bytes_min,
	};
	int error = options->device ? device_filter_init(&session->device_filter, options->device) : 0;
	if (error) {
		fail("filter by device", options->device_name, error,
		     error == -E2BIG
			     ? ": too many partitions, stacked devices and file systems lie on it; give one of them"
			     : "");
		return error;
	}
	memcpy(settings.file_devices, session->device_filter.devices, sizeof(settings.file_devices));
	if (trace_file) {
		settings.trace_file_device = device_number(major(trace_file->st_dev), minor(trace_file->st_dev));
		settings.trace_file_inode = trace_file->st_ino;
	}
	return tracer_init(&session->tracer, &settings);
}

/* Makes the trace file, records into it. The exit code. */
static int record_to_file(struct session *session)
{
	const struct options *options = session->options;
	struct stat trace_file;
	struct metadata metadata = {.options = options};
	_cleanup_free_ char *json = metadata_make(&metadata);
	int error = writer_init(&session->writer, session->path, options->force, json ? json : "{}");
	if (error) {
		fail("make trace", session->path, error,
		     error == -EEXIST ? ": choose another name or give --force" : "");
		return error == -EEXIST ? EXIT_USAGE : EXIT_FAILED;
	}
	if (fstat(session->writer.descriptor, &trace_file) || init_tracer(session, &trace_file)) {
		writer_abandon(&session->writer, session->path);
		return EXIT_FAILED;
	}
	session->trace_filesystem = trace_file.st_dev;
	int exit_code = session_record(session);
	tracer_deinit(&session->tracer);
	return exit_code;
}

static int dry_run(struct session *session)
{
	if (init_tracer(session, NULL))
		return EXIT_FAILED;
	int exit_code = plan_say(session->options, &session->wish, &session->tracer, session->path);
	tracer_deinit(&session->tracer);
	return exit_code;
}

static int make_signals(void)
{
	sigset_t stop;
	struct sigaction hangup;
	sigemptyset(&stop);
	sigaddset(&stop, SIGINT);
	sigaddset(&stop, SIGTERM);
	sigaddset(&stop, SIGQUIT);
	/* Who ignores it, as nohup does, means it. */
	if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN)
		sigaddset(&stop, SIGHUP);
	sigprocmask(SIG_BLOCK, &stop, NULL);
	return signalfd(-1, &stop, SFD_CLOEXEC);
}

int main(int argc, char **argv)
{
	static struct session session; /* too large for the stack */
	struct options options;
	char path[PATH_MAX];

	standard_streams_hold();
	options_parse(&options, argc, argv);
	if (options.survey)
		return survey_say(&options);
	if (privileges_in_pid_namespace()) {
		fprintf(stderr,
			"flextrace record: cannot record from within a PID namespace (a container): its processes have other numbers in the kernel; run it outside, or in a container with those of the host (docker run --pid=host ...); flextrace doctor says more\n");
		return EXIT_FAILED;
	}
	if (options.output)
		snprintf(path, sizeof(path), "%s", options.output);
	else
		default_output(&options, path, sizeof(path));
	session.options = &options;
	session.path = path;
	session.wish = (struct programs_wish){
		.layer_vfs = options.layer_vfs, .layer_block = options.layer_block, .group = options.group_path};
	if (options.dry_run)
		return dry_run(&session);
	if (init_target(&session))
		return EXIT_FAILED;
	/* After the fork: a command finds what is blocked and ignored as whoever started the recorder left it. */
	_cleanup_close_ int signals = make_signals();
	if (signals < 0)
		return fail("wait for", "signals", -errno, "");
	session.signals = signals;
	/* A command killed before it began, a closed stderr or a limit on sizes ends no recording unwritten. */
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);
	int exit_code = record_to_file(&session);
	target_deinit(&session.target);
	return exit_code;
}

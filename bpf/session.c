// SPDX-License-Identifier: Apache-2.0
/*
 * Turns a target that waits, loaded programs and an open trace file into a recording: round by round, until the target has
 * ended or somebody has had enough.
 */
#include "session.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "cleanup.h"
#include "clock.h"
#include "counters.h"
#include "fail.h"
#include "summary.h"

enum {
	INTERVAL_MS = 20, /* between two rounds, if nobody wakes the recorder */
	HURRIED_INTERVAL_MS = 5, /* while there are things to look up, and nobody wakes it for these */
	SIGNAL_NS = 50000000, /* within which a signal that comes twice is one, as that of timeout(1) */
	INFERRED_MANY = 1 << 16, /* offsets to work out that may take so long that the user is told */
};

/* Ctrl-C from a terminal reaches the command too; a signal sent to the recorder alone is handed on. True at the second. */
static bool take_signal(struct session *session)
{
	struct signalfd_siginfo info;
	uint64_t now_ns = monotonic_ns();
	if (!session->signalled_ns)
		session->signalled_ns = now_ns;
	/* The kernel keeps one of each number. */
	if (now_ns - session->signalled_ns < SIGNAL_NS)
		return false;
	session->signalled_ns = 0;
	if (read(session->signals, &info, sizeof(info)) != sizeof(info))
		return false;
	if (!session->target.is_command || ++session->signal_count > 1)
		return true;
	if (!target_was_sent(&session->target, info.ssi_signo))
		kill(session->target.process, info.ssi_signo);
	return false;
}

/* Completes records before they are written. */
static void observe(void *observer, struct pending *pending)
{
	struct session *session = observer;
	first_sight_observe(&session->first_sight, pending);
	if (pending->record.kind == RECORD_BLOCK) {
		const struct device *device = topology_device(&session->topology, pending->record.block.device);
		if (device && device->stacked)
			pending->record.block.flags |= BLOCK_STACKED;
	}
}

static void meet(void *observer, const struct pending *file)
{
	struct session *session = observer;
	first_sight_meet(&session->first_sight, file);
}

static int make_room(void *drain)
{
	return drain_take(drain);
}

/*
 * Rounds take the application's processors and caches, so they are few where nothing hurries. Nothing does until there is
 * something to look up (ALARM_FOR_LOOKUPS); what more there is comes in rounds that are near each other, since to be woken
 * for each costs more. Only after one without any it is listened for again, as what came after that one was not.
 */
static void set_pace(struct session *session, uint64_t lookups_before)
{
	bool listened = !session->hurries;
	session->hurries = session->drain.lookup_count != lookups_before || first_sight_is_busy(&session->first_sight);
	session->interval_ms = listened && !session->hurries ? INTERVAL_MS : HURRIED_INTERVAL_MS;
	/* What it was for may have been taken in this round, and then nothing ends the wait: it is to be set again. */
	if (tracer_alarm(&session->tracer) == ALARM_OFF)
		session->interval_ms = 0;
}

/* Takes what the rings hold and writes what is ready. 0 or a negative errno. */
static int do_round(struct session *session)
{
	const struct between between = {make_room, &session->drain};
	uint64_t lookups_before = session->drain.lookup_count;
	tracer_set_alarm(&session->tracer, session->hurries ? ALARM_FOR_ROOM : ALARM_FOR_LOOKUPS);
	int error = drain_round(&session->drain);
	if (!error)
		error = losses_poll(&session->losses, &session->tracer, &session->drain, &session->writer);
	if (!error)
		error = tracer_adopt_arrivals(&session->tracer, &between);
	first_sight_round(&session->first_sight, &session->writer, session->drain.passed_ns);
	set_pace(session, lookups_before);
	if (session->losses.sum && !session->loss_said) {
		session->loss_said = true;
		status_clear(&session->status);
		summary_say_losing(session->options, &session->tracer, session->losses.sum);
	}
	writer_flush_old(&session->writer);
	status_update(&session->status, &session->writer, session->losses.sum);
	return error ? error : session->writer.error;
}

/* What ends the wait for a round. */
enum { AWAITED_PROCESS, AWAITED_SIGNAL, AWAITED_RINGS, AWAITED };

static int await_all(const struct session *session, int awaited)
{
	const int descriptors[AWAITED] = {session->target.process_descriptor, session->signals,
					  drain_descriptor(&session->drain)};
	for (int i = 0; i < AWAITED; i++) {
		/* That there is something in the rings ends no wait, only that somebody wakes whoever waits for it. */
		struct epoll_event event = {.events = i == AWAITED_RINGS ? EPOLLIN | EPOLLET : EPOLLIN, .data.u32 = i};
		if (descriptors[i] >= 0 && epoll_ctl(awaited, EPOLL_CTL_ADD, descriptors[i], &event))
			return -errno;
	}
	return 0;
}

static int wait_ms(const struct session *session)
{
	uint64_t now_ns = session->ends_ns ? monotonic_ns() : 0;
	uint64_t left_ms = session->ends_ns > now_ns ? (session->ends_ns - now_ns) / 1000000 + 1 : 0;
	return session->ends_ns && left_ms < (uint64_t)session->interval_ms ? (int)left_ms : session->interval_ms;
}

/* Until the target has ended or somebody has had enough. 0 or a negative errno. */
static int record_until_end(struct session *session)
{
	_cleanup_close_ int awaited = epoll_create1(EPOLL_CLOEXEC);
	int error = awaited < 0 ? -errno : await_all(session, awaited);
	if (error)
		return error;
	while (!session->stopped_by) {
		struct epoll_event events[AWAITED];
		bool has_come[AWAITED] = {};
		int count = epoll_wait(awaited, events, AWAITED, wait_ms(session));
		if (count < 0 && errno != EINTR)
			return -errno;
		for (int i = 0; i < count; i++)
			has_come[events[i].data.u32] = true;
		error = do_round(session);
		if (error)
			return error;
		if (has_come[AWAITED_PROCESS])
			session->stopped_by = STOP_END;
		else if (has_come[AWAITED_SIGNAL] && take_signal(session))
			session->stopped_by = STOP_SIGNAL;
		else if (session->writer.full)
			session->stopped_by = STOP_MAX_SIZE;
		else if (session->ends_ns && monotonic_ns() >= session->ends_ns)
			session->stopped_by = STOP_MAX_TIME;
	}
	return 0;
}

/* A command that is no longer recorded goes on; its exit status is passed on all the same. */
static int64_t wait_for_command(struct session *session)
{
	struct pollfd polled[] = {{.fd = session->target.process_descriptor, .events = POLLIN},
				  {.fd = session->signals, .events = POLLIN}};
	while (poll(polled, 2, -1) >= 0 || errno == EINTR) {
		if (polled[0].revents)
			break;
		if (polled[1].revents && take_signal(session))
			return EXIT_FAILED; /* the user does not want to wait */
	}
	return target_exit_status(&session->target);
}

/* Attaches and lets the target run. 0, or a negative errno after saying what failed. */
static int begin(struct session *session)
{
	const struct options *options = session->options;
	/* Now, as the command may make it at once. */
	if (!options->quiet)
		summary_say_missing_prefix(options->path_prefix, stderr);
	int error = tracer_attach(&session->tracer);
	if (error)
		return error;
	closure_begin(&session->closure, &session->tracer, &session->wish);
	writer_mark_start(&session->writer);
	const struct between between = {make_room, &session->drain};
	error = tracer_adopt(&session->tracer, session->target.process, &between);
	if (error)
		return error;
	/* A command has done nothing until now; a process that runs has been recorded since it was adopted. */
	if (session->target.is_command)
		writer_mark_start(&session->writer);
	session->processors = counters_processor_use(&session->tracer);
	/* What was lost until now lies before the start. */
	error = losses_poll(&session->losses, &session->tracer, &session->drain, &session->writer);
	if (error)
		return error;
	error = target_release(&session->target);
	if (error == -EPIPE) {
		fprintf(stderr, "flextrace record: %s was ended by a signal before it began: nothing was recorded\n",
			options->command[0]);
	} else if (error) {
		fail("start", options->command[0], error, options->cgroup ? ", or its control group" : "");
	}
	if (error)
		return error;
	writer_begin(&session->writer);
	session->ends_ns = options->duration_ns ? monotonic_ns() + options->duration_ns : 0;
	ring_plan_say(&session->tracer.ring_plan, options->ring_bytes, options->quiet);
	if (options->quiet)
		return 0;
	fprintf(stderr, "flextrace record: recording %s; Ctrl-C ends it\n",
		options->command      ? options->command[0]
		: options->group_path ? options->group_path
				      : "the process");
	summary_say_same_disk(&session->topology, session->path, session->trace_filesystem,
			      options->command ? getpid() : session->target.process, options->path_prefix, stderr);
	return 0;
}

/* Attaching and detaching takes some tenths of a second, in which others have processors, too. */
static void end_processors(struct session *session)
{
	struct processor_use before = session->processors;

	session->processors = counters_processor_use(&session->tracer);
	session->processors.others_ns -= before.others_ns;
	session->processors.others_bursts -= before.others_bursts;
}

/* Detaches and writes what is left. 0 or a negative errno. */
static int end(struct session *session)
{
	writer_mark_end(&session->writer);
	end_processors(session);
	tracer_find_ended_requests(&session->tracer);
	closure_end_disks(&session->closure, &session->tracer);
	tracer_detach(&session->tracer);
	closure_end_tasks(&session->closure, &session->tracer);
	int error = drain_finish(&session->drain);
	session->drain.lost_here[RECORD_FILE] += counters_files_unsent(&session->tracer);
	first_sight_finish(&session->first_sight, &session->writer);
	int losses_error = losses_poll(&session->losses, &session->tracer, &session->drain, &session->writer);
	topology_scan(&session->topology);
	/* Not counted by kind, so that the trace lacks what nobody knows. */
	if (counters_missed_records(&session->tracer))
		session->writer.header.flags |= TRACE_LOST;
	error = error ? error : losses_error;
	/* Maybe by what was held back until now. */
	if (!error && session->writer.full) {
		session->stopped_by = STOP_MAX_SIZE;
		writer_cut_end(&session->writer, session->drain.written_until_ns);
	}
	return error;
}

/* Those that came by now were meant for the recording. */
static void forget_signals(const struct session *session)
{
	struct pollfd polled = {.fd = session->signals, .events = POLLIN};
	struct signalfd_siginfo info;
	while (poll(&polled, 1, 0) > 0 && read(session->signals, &info, sizeof(info)) == sizeof(info))
		;
}

/* Closes the trace. 0 or a negative errno. */
static int finish(struct session *session, bool goes_on, const char *json)
{
	struct writer *writer = &session->writer;
	if (!goes_on)
		forget_signals(session);
	writer->stop = session->signals;
	if (writer->inferred_count >= INFERRED_MANY && !session->options->quiet)
		fprintf(stderr,
			"flextrace record: working out the offsets of %zu calls that share a file position; Ctrl-C leaves them as they are\n",
			writer->inferred_count);
	int error = writer_deinit(writer, json);
	if (writer->given_up) {
		/* What has ended this is not to end the waiting for the command, too. */
		forget_signals(session);
		fprintf(stderr,
			"flextrace record: warning: the offsets of %zu calls that share a file position are the lowest possible ones: it would have taken too long, or too much memory, to work them out\n",
			writer->given_up);
	}
	return error;
}

static void say_unfinished(const char *path, int error)
{
	char words[256];
	const char *remedy = error == -ENOSPC
				     ? ". Make room, choose another place with -o, or set a limit with --max-size"
			     : error == -EFBIG ? ". Allow larger files (ulimit -f), or set a limit with --max-size"
					       : "";
	snprintf(words, sizeof(words), "; it is marked incomplete and can be read up to its last whole record%s",
		 remedy);
	fail("go on writing trace", path, error, words);
}

/* From a target that waits to a closed trace. The exit code. */
static int record(struct session *session)
{
	struct metadata metadata = {
		.options = session->options,
		.tracer = &session->tracer,
		.drain = &session->drain,
		.topology = &session->topology,
		.closure = &session->closure,
		.processors = &session->processors,
		.first_sight = &session->first_sight,
		.header = &session->writer.header,
		.exit_status = -1,
	};
	int error = begin(session);
	if (error) {
		writer_abandon(&session->writer, session->path);
		return error == -EPIPE ? target_exit_status(&session->target) : EXIT_FAILED;
	}
	error = record_until_end(session);
	bool goes_on = session->target.is_command && session->stopped_by != STOP_END;
	int end_error = end(session);
	error = error ? error : end_error;
	status_clear(&session->status);
	if (error)
		session->stopped_by = STOP_FAILED;
	metadata.stopped_by = session->stopped_by;
	if (!goes_on)
		metadata.exit_status = target_exit_status(&session->target);
	_cleanup_free_ char *json = metadata_make(&metadata);
	/* Whatever failed, what the trace lacks nobody counted. */
	if (error && !session->writer.error) {
		writer_flush(&session->writer);
		session->writer.error = error;
	}
	int close_error = finish(session, goes_on, json ? json : "{}");
	error = error ? error : close_error;
	if (error)
		say_unfinished(session->path, error);
	else
		summary_say(&metadata, session->path, session->losses.sum, goes_on);
	int64_t exit_status = goes_on ? wait_for_command(session) : metadata.exit_status;
	if (error)
		return EXIT_FAILED;
	return exit_status ? exit_status : session->writer.header.flags & TRACE_LOST ? EXIT_NOT_TRUSTWORTHY : EXIT_OK;
}

/* Makes what lies between the tracer and the trace file. The exit code. */
int session_record(struct session *session)
{
	int error = drain_init(&session->drain, session->tracer.rings, session->tracer.cpu_count, &session->writer);
	if (error) {
		writer_abandon(&session->writer, session->path);
		return fail("read", "the ring buffers", error, "");
	}
	session->drain.observe = observe;
	session->drain.meet = meet;
	session->drain.observer = session;
	session->drain.path_prefix = *session->options->path_prefix ? session->options->path_prefix : NULL;
	session->drain.device_filter = session->options->device ? &session->device_filter : NULL;
	error = losses_init(&session->losses, &session->tracer);
	if (!error)
		error = first_sight_init(&session->first_sight);
	if (error)
		writer_abandon(&session->writer, session->path);
	if (session->options->trace_bytes_max)
		writer_limit(&session->writer, session->options->trace_bytes_max, session->options->trace_end_bytes);
	status_init(&session->status, session->options->quiet);
	int exit_code = error ? fail("make", "buffers", error, "") : record(session);
	closure_deinit(&session->closure);
	topology_deinit(&session->topology);
	first_sight_deinit(&session->first_sight);
	losses_deinit(&session->losses);
	drain_deinit(&session->drain);
	return exit_code;
}

// SPDX-License-Identifier: Apache-2.0
/*
 * Starts the command to record, or takes hold of a running process.
 */
#include "target.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cleanup.h"

static int join_cgroup(const char *cgroup)
{
	char path[PATH_MAX];
	if (snprintf(path, sizeof(path), "%s/cgroup.procs", cgroup) >= (int)sizeof(path))
		return -ENAMETOOLONG;
	int descriptor = open(path, O_WRONLY | O_CLOEXEC);
	if (descriptor < 0)
		return -errno;
	int error = write(descriptor, "0", 1) < 0 ? -errno : 0;
	close(descriptor);
	return error;
}

/* The child: waits for one byte (an end of file means that recording failed), then becomes the command. */
static void __attribute__((noreturn)) become_command(char **command, const char *cgroup, int released, int tell)
{
	/* The recorder may be killed; its half-started command must not stay behind. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* Joined before the wait: the trace shall not show it. */
	int error = cgroup ? join_cgroup(cgroup) : 0;
	/* Not read: the call would end in the recording, but has not begun in it. A pipe that only hangs up is no release. */
	struct pollfd wait = {.fd = released, .events = POLLIN};
	while (poll(&wait, 1, -1) < 0 && errno == EINTR)
		;
	if (!(wait.revents & POLLIN))
		_exit(127);
	prctl(PR_SET_PDEATHSIG, 0);
	if (!error) {
		execvp(command[0], command);
		error = -errno;
	}
	if (write(tell, &error, sizeof(error)) < 0)
		_exit(126);
	_exit(error == -ENOENT ? 127 : 126);
}

/* A process that blocks all signals, so that those it gets can be seen in /proc, and that ends with the recorder. */
static pid_t start_witness(const struct target *target)
{
	sigset_t all;
	pid_t recorder = getpid(), witness = fork();
	if (witness)
		return witness;
	/* The command waits for the last of these to be closed. */
	close(target->release);
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (getppid() == recorder)
		pause();
	_exit(0);
}

static int open_process(pid_t process)
{
	int descriptor = syscall(SYS_pidfd_open, process, 0);
	return descriptor < 0 ? -errno : descriptor;
}

int target_init_command(struct target *target, char **command, const char *cgroup)
{
	int released[2], tell[2];
	*target = (struct target){.process_descriptor = -1, .release = -1, .exec_error = -1, .is_command = true};
	if (pipe2(released, O_CLOEXEC))
		return -errno;
	if (pipe2(tell, O_CLOEXEC)) {
		int error = -errno;
		close(released[0]);
		close(released[1]);
		return error;
	}
	target->process = fork();
	if (!target->process) {
		close(released[1]);
		become_command(command, cgroup, released[0], tell[1]);
	}
	int error = target->process < 0 ? -errno : 0;
	close(released[0]);
	close(tell[1]);
	target->release = released[1];
	target->exec_error = tell[0];
	if (!error) {
		target->witness = start_witness(target);
		target->process_descriptor = open_process(target->process);
		error = target->process_descriptor < 0 ? target->process_descriptor : 0;
	}
	if (error)
		target_deinit(target);
	return error;
}

int target_init_process(struct target *target, pid_t process)
{
	*target = (struct target){.process = process, .process_descriptor = -1, .release = -1, .exec_error = -1};
	if (!process)
		return 0;
	target->process_descriptor = open_process(process);
	return target->process_descriptor < 0 ? target->process_descriptor : 0;
}

int target_release(struct target *target)
{
	int error = 0;
	if (!target->is_command)
		return 0;
	if (write(target->release, "", 1) != 1)
		return -errno;
	/* The pipe closes without a word when exec succeeds. */
	ssize_t told;
	do
		told = read(target->exec_error, &error, sizeof(error));
	while (told < 0 && errno == EINTR);
	return told == sizeof(error) ? error : 0;
}

int target_exit_status(struct target *target)
{
	int status;
	if (!target->is_command)
		return 0;
	while (waitpid(target->process, &status, 0) < 0)
		if (errno != EINTR)
			return 0;
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

bool target_was_sent(const struct target *target, int signal_number)
{
	char path[64], line[128];
	unsigned long long pending;
	if (getpgid(target->process) != getpgrp())
		return false;
	snprintf(path, sizeof(path), "/proc/%d/status", target->witness);
	_cleanup_fclose_ FILE *status = fopen(path, "re");
	while (status && fgets(line, sizeof(line), status))
		if (sscanf(line, "ShdPnd: %llx", &pending) == 1)
			return pending >> (signal_number - 1) & 1;
	return false;
}

void target_deinit(struct target *target)
{
	if (target->witness > 0 && !kill(target->witness, SIGKILL))
		waitpid(target->witness, NULL, 0);
	int descriptors[] = {target->process_descriptor, target->release, target->exec_error};
	for (size_t i = 0; i < sizeof(descriptors) / sizeof(*descriptors); i++)
		if (descriptors[i] >= 0)
			close(descriptors[i]);
}

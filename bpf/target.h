/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FLEXTRACE_TARGET_H
#define FLEXTRACE_TARGET_H

#include <stdbool.h>
#include <sys/types.h>

/* What is recorded: a command that waits to be released, a process that runs already, or neither (a control group). */
struct target {
	pid_t process; /* 0 = neither */
	int process_descriptor; /* pidfd: readable when the process has ended; -1 = neither */
	int release; /* write end of the pipe that the command waits on, -1 for a running process */
	int exec_error; /* read end of the pipe on which a failed exec is told */
	pid_t witness; /* of a command: gets what is sent to the recorder's process group, and keeps it; 0 = none */
	bool is_command;
};

/* Forks a child that joins the control group (NULL = stays) and waits. 0 or a negative errno. */
int target_init_command(struct target *target, char **command, const char *cgroup);
/* -ESRCH if there is no such process. 0 = none. */
int target_init_process(struct target *target, pid_t process);
/* Lets the command run. 0, or the negative errno of joining the control group or of exec. */
int target_release(struct target *target);
/* Exit status as a shell gives it; 0 for a process that is not our child. Waits for a command's end. */
int target_exit_status(struct target *target);
/* Whether a signal that the recorder has got was sent to its whole process group, and so to the command, too. */
bool target_was_sent(const struct target *target, int signal_number);
void target_deinit(struct target *target);

#endif /* FLEXTRACE_TARGET_H */

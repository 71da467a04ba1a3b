// SPDX-License-Identifier: Apache-2.0
/*
 * A tree of threads and processes made in every way there is; each writes a file of its own. Tells what it did as told.h
 * says, and "task THREAD PROCESS PARENT COMM" of each. One that execs has the name "executed" from then on.
 *
 *	tasks DIRECTORY           the tree
 *	tasks DIRECTORY NAME      (itself, after exec) writes NAME and ends
 */
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "told.h"

enum { WRITES = 7, BYTES = 101, STACK_BYTES = 1 << 16 };

static const char *program;

static void tell_task(void)
{
	char name[16];
	prctl(PR_GET_NAME, name);
	printf("task %d %d %d %s\n", gettid(), getpid(), getppid(), name);
}

static void work(const char *name)
{
	char buffer[BYTES] = {0};
	tell_task();
	int file = open_file(name, O_WRONLY | O_CREAT | O_EXCL);
	for (int i = 0; i < WRITES; i++)
		did("write", name, i * BYTES, BYTES, write(file, buffer, BYTES), SOURCE_SYSCALL, 0);
	close_file(name, file);
}

static void wait_for(pid_t child)
{
	int status;
	if (waitpid(child, &status, __WALL) != child || status)
		errx(1, "a child failed");
}

/* By another name, which becomes the name of the task. */
static void exec_self(const char *name)
{
	char path[PATH_ROOM];
	execl(path_of("executed", path), program, told_directory, name, NULL);
	_exit(127);
}

static void *run_thread(void *name)
{
	pthread_setname_np(pthread_self(), name);
	work(name);
	return NULL;
}

/* Ends within a call of the C library's, while the others go on. */
static void *leave_early(void *name)
{
	char text[32];
	snprintf(text, sizeof(text), "%s-more", (const char *)name);
	work(name);
	work(text);
	pthread_exit(NULL);
}

static int run_clone(void *name)
{
	work(name);
	fflush(stdout);
	_exit(0);
}

static void do_threads(void)
{
	char names[5][16];
	pthread_t threads[5];
	for (int i = 0; i < 5; i++) {
		snprintf(names[i], sizeof(names[i]), "thread%d", i);
		pthread_create(&threads[i], NULL, i == 3 ? leave_early : run_thread, names[i]);
	}
	for (int i = 0; i < 5; i++)
		pthread_join(threads[i], NULL);
	/* A number of a thread that has ended may come back as that of another. */
	pthread_create(&threads[0], NULL, run_thread, "thread-later");
	pthread_join(threads[0], NULL);
}

static void do_processes(void)
{
	static char stack[STACK_BYTES] __attribute__((aligned(16)));
	fflush(stdout);
	pid_t child = fork();
	if (child == 0) {
		work("forked");
		fflush(stdout);
		exec_self("forked-exec");
	}
	wait_for(child);
	child = vfork();
	if (child == 0)
		exec_self("vforked");
	wait_for(child);
	/* Shares the table of descriptors, not the memory. */
	child = clone(run_clone, stack + STACK_BYTES, CLONE_FILES | SIGCHLD, "cloned");
	wait_for(child);
	child = fork();
	if (child == 0) {
		if (unshare(CLONE_NEWNS | CLONE_FS | CLONE_FILES))
			err(1, "unshare");
		work("unshared");
		exit(0);
	}
	wait_for(child);
}

/* A daemon: its parent is gone before it works. The end of the pipe says that it has ended. */
static void do_daemon(void)
{
	int end[2];
	char byte;
	if (pipe(end))
		err(1, "pipe");
	pid_t child = fork();
	if (child == 0) {
		pid_t parent = getpid();
		if (fork() == 0) {
			setsid();
			while (getppid() == parent)
				usleep(100);
			work("daemon");
			exit(0);
		}
		_exit(0);
	}
	wait_for(child);
	close(end[1]);
	expect("the end of the daemon", read(end[0], &byte, 1), 0);
	close(end[0]);
}

/* Another thread than the first one execs: it takes over the number of the first. */
static void *exec_from_thread(void *name)
{
	exec_self(name);
	return NULL;
}

static void do_exec_from_thread(void)
{
	fflush(stdout);
	pid_t child = fork();
	if (child == 0) {
		pthread_t thread;
		pthread_create(&thread, NULL, exec_from_thread, "thread-exec");
		pause();
	}
	wait_for(child);
}

int main(int argc, char **argv)
{
	if (argc < 2)
		errx(2, "usage: tasks DIRECTORY");
	program = argv[0];
	told_init(argv[1]);
	if (argc == 3) {
		work(argv[2]);
		return 0;
	}
	char path[PATH_ROOM], self[PATH_ROOM];
	if (!realpath("/proc/self/exe", self))
		err(1, "/proc/self/exe");
	did_file("symlink", "?>executed", 0, 0, answer(symlink(self, path_of("executed", path))), 0);
	work("main");
	do_threads();
	do_processes();
	do_daemon();
	do_exec_from_thread();
	work("main-last");
	return 0;
}

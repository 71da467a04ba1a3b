// SPDX-License-Identifier: Apache-2.0
/*
 * Operations on names and on files that move no data: made, linked, renamed, removed by absolute path, relative to the
 * working directory, to a descriptor and to another root; sizes, synchronisation, advice. Tells what it did as told.h says.
 *
 *	names DIRECTORY
 */
#include <linux/falloc.h>

#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "told.h"

enum { FILE_BYTES = 10007 };

static char room[2][PATH_ROOM];

static const char *first(const char *name)
{
	return path_of(name, room[0]);
}

static const char *second(const char *name)
{
	return path_of(name, room[1]);
}

static void make_empty(const char *name)
{
	close_file(name, open_file(name, O_WRONLY | O_CREAT | O_EXCL));
}

static void do_names(int directory)
{
	did_file("mkdir", "made", 0, 0751, answer(mkdir(first("made"), 0751)), 0);
	did_file("mkdir", "made/inner", 0, 0700, answer(mkdirat(directory, "made/inner", 0700)), 0);
	/* EEXIST: a call that fails makes no name. */
	did_file("mkdir", "?", 0, 0700, answer(mkdir(first("made"), 0700)), 0);
	did_file("rmdir", "made", 0, 0, answer(rmdir(first("made"))), 0); /* ENOTEMPTY */
	did_file("rmdir", "made/inner", 0, 0, answer(rmdir("made/inner")), 0);
	did_file("rmdir", "made", 0, 0, answer(unlinkat(directory, "made", AT_REMOVEDIR)), 0);

	make_empty("old");
	did_file("link", "old>hard", 0, 0, answer(link(first("old"), second("hard"))), 0);
	did_file("link", "old>hard2", 0, 0, answer(linkat(directory, "hard", AT_FDCWD, second("hard2"), 0)), 0);
	did_file("link", "old>?", 0, 0, answer(link("old", "./hard")), 0); /* EEXIST */
	did_file("symlink", "?>soft", 0, 0, answer(symlink("old", second("soft"))), 0);
	did_file("symlink", "?>soft2", 0, 0, answer(symlinkat("nowhere", directory, "soft2")), 0);
	did_file("unlink", "soft", 0, 0, answer(unlink("soft")), 0);
	did_file("unlink", "soft2", 0, 0, answer(unlinkat(directory, "./soft2", 0)), 0);
	did_file("unlink", "old", 0, 0, answer(unlink(first("hard"))), 0);

	/* Over a file that exists, and the two exchanged. */
	make_empty("target");
	did_file("rename", "old>target", 0, 0, answer(rename(first("old"), second("target"))), 0);
	did_file("truncate", "old", 101, 0, answer(truncate(first("target"), 101)), 0);
	make_empty("left");
	make_empty("right");
	did_file("rename", "left>right", 0, RENAME_EXCHANGE,
		 answer(renameat2(AT_FDCWD, first("left"), directory, "right", RENAME_EXCHANGE)), 0);
	did_file("truncate", "right", 103, 0, answer(truncate(first("left"), 103)), 0);
	did_file("truncate", "left", 107, 0, answer(truncate(first("right"), 107)), 0);
	did_file("unlink", "right", 0, 0, answer(unlink(first("left"))), 0);
	did_file("rename", "left>?", 0, RENAME_NOREPLACE,
		 answer(renameat2(directory, "right", directory, "right", RENAME_NOREPLACE)), 0); /* EEXIST */

	/* A directory is renamed: its files keep the names that they were first seen by. */
	did_file("mkdir", "before", 0, 0700, answer(mkdir("before", 0700)), 0);
	make_empty("before/file");
	did_file("rename", "before>after", 0, 0, answer(rename("before", "after")), 0);
	did_file("unlink", "before/file", 0, 0, answer(unlink(first("after/file"))), 0);
	did_file("rmdir", "before", 0, 0, answer(rmdir(first("after"))), 0);
}

static void do_opens(int directory)
{
	int file = openat(directory, "relative", O_RDWR | O_CREAT | O_EXCL, 0640);
	did_file("open", "relative", file, 0640, 0, IO_CREATED);
	close_file("relative", file);
	file = creat("created", 0604);
	did_file("open", "created", file, 0604, 0, IO_CREATED | IO_TRUNCATED);
	close_file("created", file);
	struct open_how how = {.flags = O_RDWR | O_CREAT | O_EXCL | O_APPEND, .mode = 0600};
	file = syscall(SYS_openat2, directory, "opened2", &how, sizeof(how));
	did_file("open", "opened2", file, 0600, 0, IO_CREATED | IO_APPEND);
	close_file("opened2", file);
	close_file("created", open_file("created", O_RDONLY));
	close_file("created", open_file("created", O_WRONLY | O_TRUNC));
	/* Through a symbolic link the file is the one that it points to. */
	did_file("symlink", "?>pointer", 0, 0, answer(symlink("created", first("pointer"))), 0);
	file = open("pointer", O_RDONLY);
	did_file("open", "created", file, 0, 0, 0);
	close_file("created", file);
}

static void do_sizes_and_advice(void)
{
	make_file("sized", FILE_BYTES);
	int file = open_file("sized", O_RDWR);
	did_file("truncate", "sized", 20011, 0, answer(ftruncate(file, 20011)), 0);
	did_file("truncate", "sized", 5003, 0, answer(truncate("sized", 5003)), 0);
	did_file("truncate", "sized", -1, 0, answer(ftruncate(file, -1)), 0); /* EINVAL */
	did_file("fallocate", "sized", 0, 30011, answer(fallocate(file, 0, 0, 30011)), 0);
	did_file("fallocate", "sized", 40009, 10007, answer(fallocate(file, FALLOC_FL_KEEP_SIZE, 40009, 10007)),
		 FALLOC_FL_KEEP_SIZE << 16);
	int hole = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
	did_file("fallocate", "sized", 4099, 8209, answer(fallocate(file, hole, 4099, 8209)), hole << 16);
	did_file("fallocate", "sized", 16411, 4111, answer(fallocate(file, FALLOC_FL_ZERO_RANGE, 16411, 4111)),
		 FALLOC_FL_ZERO_RANGE << 16);
	did_file("fadvise", "sized", 101, 1009, posix_fadvise(file, 101, 1009, POSIX_FADV_SEQUENTIAL),
		 POSIX_FADV_SEQUENTIAL << 16);
	did_file("fadvise", "sized", 0, 0, posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED), POSIX_FADV_DONTNEED << 16);
	did_file("fadvise", "sized", 103, 2003, answer(readahead(file, 103, 2003)), POSIX_FADV_WILLNEED << 16);

	unsigned int range = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE;
	did_file("sync_file_range", "sized", 11, 3001, answer(sync_file_range(file, 11, 3001, range)), range << 16);
	did_file("fsync", "sized", 0, 0, answer(fsync(file)), 0);
	did_file("fdatasync", "sized", 0, 0, answer(fdatasync(file)), 0);
	did_file("syncfs", "sized", 0, 0, answer(syncfs(file)), 0);
	sync();
	did_file("syncfs", "?", 0, 0, 0, 0);
	close_file("sized", file);
	expect("fsync of a closed descriptor", fsync(1021), -1);
}

/* From another root the names are those that the program uses. */
static void do_other_root(void)
{
	did_file("mkdir", "root", 0, 0700, answer(mkdir("root", 0700)), 0);
	fflush(stdout);
	if (fork() == 0) {
		if (chroot("root") || chdir("/"))
			err(1, "chroot");
		told_directory = "";
		make_empty("/inside");
		did_file("mkdir", "/deep", 0, 0700, answer(mkdir("/deep", 0700)), 0);
		did_file("rename", "/inside>/deep/moved", 0, 0, answer(rename("inside", "deep/moved")), 0);
		did_file("unlink", "/inside", 0, 0, answer(unlink("/deep/../deep/moved")), 0);
		exit(0);
	}
	int status;
	if (wait(&status) < 0 || status)
		errx(1, "the process with another root failed");
}

int main(int argc, char **argv)
{
	if (argc != 2)
		errx(2, "usage: names DIRECTORY");
	told_init(argv[1]);
	if (chdir(argv[1]))
		err(1, "chdir");
	umask(0);
	int directory = open_file(".", O_RDONLY | O_DIRECTORY);
	do_names(directory);
	do_opens(directory);
	do_sizes_and_advice();
	do_other_root();
	did_file("fsync", ".", 0, 0, answer(fsync(directory)), IO_DIRECTORY);
	close_file(".", directory);
	return 0;
}

// SPDX-License-Identifier: Apache-2.0
/*
 * System calls of the 32-bit and of the x32 kind from a 64-bit program, between those of its own kind. Tells the latter as
 * told.h says, and "compat N": how many of the others there were.
 *
 *	compat DIRECTORY
 */
#include <sys/mman.h>
#include <sys/syscall.h>

#include "told.h"

/* Numbers of the 32-bit system calls (arch/x86/entry/syscalls/syscall_32.tbl): other calls have them in 64 bits. */
enum {
	COMPAT_READ = 3,
	COMPAT_WRITE = 4,
	COMPAT_PREAD = 180,
	COMPAT_PWRITE = 181,
};

/* Of x32 calls (arch/x86/entry/syscalls/syscall_64.tbl). */
enum {
	X32 = 0x40000000,
	X32_PREADV = X32 + 534,
};

static int calls;

static long compat_call(long number, long first, long second, long third, long fourth)
{
	long result;
	calls++;
	/* int 0x80 leaves r8 to r11 alone since 4.17, but clears them before. */
	asm volatile("xor %%edi, %%edi\n\tint $0x80"
		     : "=a"(result)
		     : "a"(number), "b"(first), "c"(second), "d"(third), "S"(fourth)
		     : "memory", "edi", "r8", "r9", "r10", "r11");
	return result;
}

/* Most kernels have no x32 calls, or are to be told to have them when they boot. */
static void x32_read(int file, char *buffer)
{
	long done = syscall(X32 + SYS_pread64, file, buffer, 37, 0);
	if (done >= 0 || errno != ENOSYS)
		expect("read of 37 bytes", done, 37);
	syscall(X32_PREADV, file, NULL, 0, 0, 0);
	calls += 2;
	syscall(X32 + SYS_getpid); /* would not be recorded of any program */
}

int main(int argc, char **argv)
{
	if (argc != 2)
		errx(2, "usage: compat DIRECTORY");
	told_init(argv[1]);
	char *buffer = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
	if (buffer == MAP_FAILED)
		err(1, "mmap");
	int file = open_file("file", O_RDWR | O_CREAT | O_EXCL);
	for (int i = 0; i < 11; i++) {
		did("write", "file", i * 60, 31, pwrite(file, buffer, 31, i * 60), SOURCE_SYSCALL, IO_POSITIONED);
		expect("write of 29 bytes", compat_call(COMPAT_PWRITE, file, (long)buffer, 29, i * 60 + 31), 29);
	}
	for (int i = 0; i < 7; i++) {
		did("read", "file", i * 60, 31, read(file, buffer, 31), SOURCE_SYSCALL, 0);
		expect("read of 29 bytes", compat_call(COMPAT_READ, file, (long)buffer, 29, 0), 29);
	}
	for (int i = 0; i < 5; i++) {
		did("read", "file", i * 17, 19, pread(file, buffer, 19, i * 17), SOURCE_SYSCALL, IO_POSITIONED);
		expect("read of 23 bytes", compat_call(COMPAT_PREAD, file, (long)buffer, 23, i * 17), 23);
	}
	for (int i = 0; i < 3; i++)
		x32_read(file, buffer);
	expect("write of 13 bytes", compat_call(COMPAT_WRITE, file, (long)buffer, 13, 0), 13);
	did("write", "file", 433, 17, write(file, buffer, 17), SOURCE_SYSCALL, 0);
	close_file("file", file);
	/* One that makes a page dirty is no store to a mapping. */
	make_file("clean", 3 * 4096);
	file = open_file("clean", O_RDWR);
	expect("write of 29 bytes", compat_call(COMPAT_PWRITE, file, (long)buffer, 29, 4096), 29);
	close_file("clean", file);
	printf("compat %d\n", calls);
	return 0;
}

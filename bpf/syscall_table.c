// SPDX-License-Identifier: Apache-2.0
/*
 * Which system call numbers of this architecture are recorded, and as what.
 */
#include "syscall_table.h"

#include <assert.h>
#include <stddef.h>
#include <sys/syscall.h>

#include "ring_event.h"

static const struct {
	uint16_t number;
	uint8_t call;
} table[] = {
	{SYS_read, CALL_READ},
	{SYS_write, CALL_WRITE},
	{SYS_pread64, CALL_PREAD},
	{SYS_pwrite64, CALL_PWRITE},
	{SYS_readv, CALL_READV},
	{SYS_writev, CALL_WRITEV},
	{SYS_preadv, CALL_PREADV},
	{SYS_pwritev, CALL_PWRITEV},
	{SYS_preadv2, CALL_PREADV2},
	{SYS_pwritev2, CALL_PWRITEV2},
	{SYS_close, CALL_CLOSE},
	{SYS_fsync, CALL_FSYNC},
	{SYS_fdatasync, CALL_FDATASYNC},
	{SYS_sync_file_range, CALL_SYNC_FILE_RANGE},
	{SYS_ftruncate, CALL_FTRUNCATE},
	{SYS_fallocate, CALL_FALLOCATE},
	{SYS_fadvise64, CALL_FADVISE},
	{SYS_openat, CALL_OPENAT},
	{SYS_openat2, CALL_OPENAT2},
	{SYS_open_by_handle_at, CALL_OPENAT}, /* has its flags at the same place, and makes no file */
	{SYS_unlinkat, CALL_UNLINKAT},
	{SYS_renameat2, CALL_RENAMEAT2},
	{SYS_readahead, CALL_READAHEAD},
	{SYS_syncfs, CALL_SYNCFS},
	{SYS_sendfile, CALL_SENDFILE},
	{SYS_splice, CALL_SPLICE},
	{SYS_copy_file_range, CALL_COPY_FILE_RANGE},
	{SYS_truncate, CALL_TRUNCATE},
	{SYS_mkdirat, CALL_MKDIRAT},
	{SYS_linkat, CALL_LINKAT},
	{SYS_symlinkat, CALL_SYMLINKAT},
	{SYS_sync, CALL_SYNC},
	{SYS_msync, CALL_MSYNC},
	{SYS_mmap, CALL_MMAP},
	{SYS_execve, CALL_EXEC},
	{SYS_execveat, CALL_EXEC},
	{SYS_exit_group, CALL_EXIT},
	{SYS_io_submit, CALL_IO_SUBMIT},
	{SYS_io_getevents, CALL_IO_GETEVENTS},
	{SYS_io_pgetevents, CALL_IO_GETEVENTS},
	{SYS_io_setup, CALL_IO_SETUP},
	{SYS_io_destroy, CALL_IO_DESTROY},
	{SYS_io_uring_enter, CALL_IO_URING_ENTER},
	{SYS_ioctl, CALL_IOCTL},
/* Newer architectures have only the *at forms of these. */
#ifdef SYS_open
	{SYS_open, CALL_OPEN},
	{SYS_creat, CALL_CREAT},
	{SYS_unlink, CALL_UNLINK},
	{SYS_rename, CALL_RENAME},
	{SYS_mkdir, CALL_MKDIR},
	{SYS_rmdir, CALL_RMDIR},
	{SYS_link, CALL_LINK},
	{SYS_symlink, CALL_SYMLINK},
#endif
#ifdef SYS_renameat
	{SYS_renameat, CALL_RENAMEAT},
#endif
};

#ifdef __x86_64__

/* As x32 calls these have other numbers (arch/x86/entry/syscalls/syscall_64.tbl), since what they read differs. */
enum {
	X32_READV = 515,
	X32_WRITEV = 516,
	X32_PREADV = 534,
	X32_PWRITEV = 535,
	X32_IO_SUBMIT = 544,
	X32_PREADV2 = 546,
	X32_PWRITEV2 = 547,
};

static const uint16_t x32_numbers[] = {
	X32_READV, X32_WRITEV, X32_PREADV, X32_PWRITEV, X32_IO_SUBMIT, X32_PREADV2, X32_PWRITEV2,
};

/* Marks the numbers of x32 calls that would be recorded of a 64-bit program: they are counted. */
static void mark_x32_calls(uint8_t *call_of_syscall)
{
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		uint8_t call = table[i].call;
		if (call <= CALL_MSYNC || call == CALL_IO_URING_ENTER)
			call_of_syscall[table[i].number] |= CALL_IF_X32;
	}
	for (size_t i = 0; i < sizeof(x32_numbers) / sizeof(x32_numbers[0]); i++)
		call_of_syscall[x32_numbers[i]] |= CALL_IF_X32;
}

#else

/* No other architecture has them. */
static void mark_x32_calls(uint8_t *call_of_syscall)
{
}

#endif

void syscall_table_fill(uint8_t *call_of_syscall)
{
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		assert(table[i].number < SYSCALL_NUMBERS_MAX);
		call_of_syscall[table[i].number] = table[i].call;
	}
	compat_table_fill(call_of_syscall);
	mark_x32_calls(call_of_syscall);
}

// SPDX-License-Identifier: Apache-2.0
/*
 * Which numbers are, as 32-bit system calls, such that would be recorded of a 64-bit program: they are counted.
 *
 * A file of its own, because the numbers of the two kinds have the same names.
 */
#include "syscall_table.h"

#ifdef __x86_64__
#include <asm/unistd_32.h>

#include <stddef.h>

#include "ring_event.h"

static const uint16_t numbers[] = {
	__NR_read,	 __NR_write,	       __NR_pread64,	 __NR_pwrite64,
	__NR_readv,	 __NR_writev,	       __NR_preadv,	 __NR_pwritev,
	__NR_preadv2,	 __NR_pwritev2,	       __NR_sendfile,	 __NR_sendfile64,
	__NR_splice,	 __NR_copy_file_range, __NR_io_submit,	 __NR_io_uring_enter,
	__NR_open,	 __NR_openat,	       __NR_openat2,	 __NR_creat,
	__NR_close,	 __NR_fsync,	       __NR_fdatasync,	 __NR_sync,
	__NR_syncfs,	 __NR_sync_file_range, __NR_msync,	 __NR_truncate,
	__NR_truncate64, __NR_ftruncate,       __NR_ftruncate64, __NR_fallocate,
	__NR_fadvise64,	 __NR_fadvise64_64,    __NR_readahead,	 __NR_unlink,
	__NR_unlinkat,	 __NR_rename,	       __NR_renameat,	 __NR_renameat2,
	__NR_mkdir,	 __NR_mkdirat,	       __NR_rmdir,	 __NR_link,
	__NR_linkat,	 __NR_symlink,	       __NR_symlinkat,	 __NR_open_by_handle_at,
};

void compat_table_fill(uint8_t *call_of_syscall)
{
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		call_of_syscall[numbers[i]] |= CALL_IF_COMPAT;
}

#else

/* No other architecture that is supported runs 32-bit programs on numbers of their own. */
void compat_table_fill(uint8_t *call_of_syscall)
{
}

#endif

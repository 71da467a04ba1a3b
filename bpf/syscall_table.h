/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FLEXTRACE_SYSCALL_TABLE_H
#define FLEXTRACE_SYSCALL_TABLE_H

#include <stdint.h>

/* Fills the table that the BPF programs use: system call number -> enum call. */
void syscall_table_fill(uint8_t *call_of_syscall);

/* Marks the numbers that a 32-bit program uses for such calls with CALL_IF_COMPAT. */
void compat_table_fill(uint8_t *call_of_syscall);

#endif /* FLEXTRACE_SYSCALL_TABLE_H */

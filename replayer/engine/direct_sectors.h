/* SPDX-License-Identifier: Apache-2.0 */
/* Turns a file into the unit in which its storage does direct I/O. */
#ifndef FLEXTRACE_DIRECT_SECTORS_H
#define FLEXTRACE_DIRECT_SECTORS_H

#include <stdint.h>

enum { SECTOR_BYTES_MIN = 512 }; /* no storage has smaller ones */

/* What the file system says (Linux 6.1), else the logical sectors of its device, else the smallest. */
uint32_t direct_sector_bytes(int directory, const char *name);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FLEXTRACE_FOLIO_SIZE_H
#define FLEXTRACE_FOLIO_SIZE_H

#include <stdint.h>

enum {
	FOLIO_ORDER_MAX = 11, /* the page cache has no larger ones with pages of 4 KiB, of others they count as such */
};

/* What the kernel tells about page frames; -1 where it does not tell us. */
struct folio_size {
	int pagemap, page_flags;
};

void folio_size_init(struct folio_size *folio_size);
/*
 * The order of the folio of a page of a file that is in the page cache: it has 2^order pages. -errno where that cannot be
 * told: -EPERM without CAP_SYS_ADMIN, -EINVAL before Linux 5.14.
 */
int folio_size_order(const struct folio_size *folio_size, int descriptor, uint64_t page);
void folio_size_deinit(struct folio_size *folio_size);

#endif /* FLEXTRACE_FOLIO_SIZE_H */

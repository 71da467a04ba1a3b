/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel maps where an aio_context_t points (fs/aio.c): not in its headers, but libaio relies on it too. */
#ifndef FLEXTRACE_TEST_AIO_RING_H
#define FLEXTRACE_TEST_AIO_RING_H

#include <linux/aio_abi.h>

#define AIO_RING_MAGIC 0xa10a10a1

struct aio_ring {
	unsigned int id;
	unsigned int entries;
	_Atomic unsigned int head;
	_Atomic unsigned int tail;
	unsigned int magic;
	unsigned int compat_features;
	unsigned int incompat_features;
	unsigned int header_bytes;
	struct io_event events[];
};

#endif /* FLEXTRACE_TEST_AIO_RING_H */

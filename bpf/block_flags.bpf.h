/* SPDX-License-Identifier: Apache-2.0 OR BSD-2-Clause */
/*
 * Operation and flags of a request or bio, as the kernel numbers them -> enum block_op and enum block_flag.
 */
#ifndef FLEXTRACE_BLOCK_FLAGS_BPF_H
#define FLEXTRACE_BLOCK_FLAGS_BPF_H

#include "maps.bpf.h"

/* enum req_op of include/linux/blk_types.h; the operation is the low byte. */
enum {
	REQUEST_OP_MASK = 0xff,
	REQUEST_OP_READ = 0,
	REQUEST_OP_WRITE = 1,
	REQUEST_OP_FLUSH = 2,
	REQUEST_OP_DISCARD = 3,
	REQUEST_OP_SECURE_ERASE = 5,
	REQUEST_OP_WRITE_ZEROES = 9,
	REQUEST_OP_DRIVER_IN = 34,
	REQUEST_OP_DRIVER_OUT = 35,
	SECTOR_SHIFT = 9,
};

/* Its number differs between kernels. */
enum req_op {
	REQ_OP_ZONE_APPEND = 7,
};

/* Bit numbers differ between kernels, so they are read from BTF by name. */
enum req_flag_bits {
	__REQ_SYNC = 11,
	__REQ_META = 12,
	__REQ_PRIO = 13,
	__REQ_IDLE = 15,
	__REQ_FUA = 17,
	__REQ_PREFLUSH = 18,
	__REQ_RAHEAD = 19,
	__REQ_BACKGROUND = 20,
	__REQ_SWAP = 24,
};

#define has_request_flag(command_flags, bit)                    \
	(bpf_core_enum_value_exists(enum req_flag_bits, bit) && \
	 ((command_flags) >> bpf_core_enum_value(enum req_flag_bits, bit)) & 1)

#define flag_if(command_flags, bit, flag) (has_request_flag(command_flags, bit) ? (flag) : 0)

static __always_inline __u32 block_flags(__u32 command_flags)
{
	/* The operation is the low byte; plain reads, the hottest of all, have no flag. */
	if (!(command_flags & ~REQUEST_OP_MASK))
		return 0;
	return flag_if(command_flags, __REQ_SYNC, BLOCK_SYNC) | flag_if(command_flags, __REQ_META, BLOCK_META) |
	       flag_if(command_flags, __REQ_PRIO, BLOCK_PRIO) | flag_if(command_flags, __REQ_FUA, BLOCK_FUA) |
	       flag_if(command_flags, __REQ_PREFLUSH, BLOCK_PREFLUSH) |
	       flag_if(command_flags, __REQ_RAHEAD, BLOCK_READAHEAD) |
	       flag_if(command_flags, __REQ_BACKGROUND, BLOCK_BACKGROUND) |
	       flag_if(command_flags, __REQ_SWAP, BLOCK_SWAP);
}

/* A write, be it to where a zone ends at the time. */
static __always_inline bool writes_data(__u32 command_flags)
{
	__u32 op = command_flags & REQUEST_OP_MASK;
	return op == REQUEST_OP_WRITE || (bpf_core_enum_value_exists(enum req_op, REQ_OP_ZONE_APPEND) &&
					  op == bpf_core_enum_value(enum req_op, REQ_OP_ZONE_APPEND));
}

static __always_inline __u8 block_op(__u32 command_flags)
{
	if (writes_data(command_flags))
		return BLOCK_WRITE;
	switch (command_flags & REQUEST_OP_MASK) {
	case REQUEST_OP_READ:
		return BLOCK_READ;
	case REQUEST_OP_FLUSH:
		return BLOCK_FLUSH;
	case REQUEST_OP_DISCARD:
		return BLOCK_DISCARD;
	case REQUEST_OP_SECURE_ERASE:
		return BLOCK_SECURE_ERASE;
	case REQUEST_OP_WRITE_ZEROES:
		return BLOCK_WRITE_ZEROES;
	case REQUEST_OP_DRIVER_IN:
	case REQUEST_OP_DRIVER_OUT:
		return BLOCK_OTHER;
	default:
		return BLOCK_ZONE;
	}
}

static __always_inline bool moves_data(__u32 command_flags)
{
	return (command_flags & REQUEST_OP_MASK) == REQUEST_OP_READ || writes_data(command_flags);
}

/* The flags of what is waited for by a program, or by the log of ext4 or xfs; a write-back that is waited for has one. */
static __always_inline bool is_waited_write(__u32 command_flags)
{
	return writes_data(command_flags) && has_request_flag(command_flags, __REQ_SYNC) &&
	       has_request_flag(command_flags, __REQ_IDLE);
}

static __always_inline bool is_journal_write(__u32 command_flags)
{
	return is_waited_write(command_flags) && has_request_flag(command_flags, __REQ_META);
}

static __always_inline bool is_direct_write(__u32 command_flags)
{
	return is_waited_write(command_flags) && !has_request_flag(command_flags, __REQ_META);
}

#endif /* FLEXTRACE_BLOCK_FLAGS_BPF_H */

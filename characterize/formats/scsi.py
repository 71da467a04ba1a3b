# SPDX-License-Identifier: Apache-2.0
"""Turns SCSI operation codes into operations of BLOCK records; what the formats of CloudPhysics share."""

from __future__ import annotations

from characterize.layout import BlockOp

# Commands of 6, 10, 12, 16 bytes, as SBC-3 numbers them.
OP_OF_CODE = {
    **dict.fromkeys((0x08, 0x28, 0xA8, 0x88), BlockOp.READ),
    **dict.fromkeys((0x0A, 0x2A, 0xAA, 0x8A), BlockOp.WRITE),
    **dict.fromkeys((0x35, 0x91), BlockOp.FLUSH),
    **dict.fromkeys((0x41, 0x93), BlockOp.WRITE_ZEROES),
    0x42: BlockOp.DISCARD,
}
CODES = 256


def op_of_code(code: int) -> int:
    """Operation of a SCSI command; those that move no data and are none of the known are ``OTHER``."""
    return OP_OF_CODE.get(code, BlockOp.OTHER)

# SPDX-License-Identifier: Apache-2.0
"""Turns a CloudPhysics CSV (one virtual disk) into a Trace of BLOCK records.

A header line, then ``version,time,op,size,lbn``: seconds (resolution 1 s; the order of the lines is the order of the
requests), SCSI opcode in hexadecimal, bytes, logical block of 512 bytes. Durations and threads are not in the format.
"""

from __future__ import annotations

from pathlib import Path

from characterize.formats.block_lines import Row, read_lines, trace_of_rows
from characterize.layout import BlockOp
from characterize.trace import Trace

# SCSI operation codes of READ and WRITE with 6, 10, 12 and 16 bytes.
_OP_OF = {
    **dict.fromkeys((0x08, 0x28, 0xA8, 0x88), BlockOp.READ),
    **dict.fromkeys((0x0A, 0x2A, 0xAA, 0x8A), BlockOp.WRITE),
}


def _parse(line: str) -> Row:
    fields = line.split(",")
    if len(fields) != 5:
        raise ValueError(f"{len(fields)} fields instead of version,time,op,size,lbn")
    seconds, opcode, size, sector = float(fields[1]), int(fields[2], 16), int(fields[3]), int(fields[4])
    if not 0 <= seconds < 2**33:
        raise ValueError(f"time {fields[1]} is out of range")
    op = _OP_OF.get(opcode, BlockOp.OTHER)
    return round(seconds * 1e9), 0, sector, size, op


def read(path: Path) -> Trace:
    """Read a file of the format; opcodes other than READ and WRITE become ``BLOCK_OTHER``, which are not requests.

    Raises
    ------
    FlextraceError
        A line is not in the format.
    OSError
        The file cannot be read.
    """
    rows = read_lines(path, _parse, skip_lines=1)
    return trace_of_rows(path, "cloudphysics", rows, {"time_resolution_s": 1})

# SPDX-License-Identifier: Apache-2.0
"""Turns an ASCII trace of the SSD simulator MQSim into a Trace of BLOCK records.

Five numbers a line, separated by blanks: arrival in ns, device, first sector and number of sectors of 512 bytes,
1 = read or 0 = write. Durations and threads are not in the format.
"""

from __future__ import annotations

from pathlib import Path

from characterize.formats.block_lines import Row, read_lines, trace_of_rows
from characterize.layout import BlockOp
from characterize.requests import SECTOR_BYTES
from characterize.trace import Trace

_OP_OF = {"1": BlockOp.READ, "0": BlockOp.WRITE}


def _parse(line: str) -> Row:
    fields = line.split()
    if len(fields) != 5:
        raise ValueError(f"{len(fields)} fields instead of arrival, device, sector, sectors, type")
    if fields[4] not in _OP_OF:
        raise ValueError(f"type {fields[4]!r} is neither 1 (read) nor 0 (write)")
    arrival, device, sector, sectors = (int(text) for text in fields[:4])
    return arrival, device, sector, sectors * SECTOR_BYTES, _OP_OF[fields[4]]


def read(path: Path) -> Trace:
    """Read a file of the format.

    Raises
    ------
    FlextraceError
        A line is not in the format.
    OSError
        The file cannot be read.
    """
    return trace_of_rows(path, "mqsim", read_lines(path, _parse), {})

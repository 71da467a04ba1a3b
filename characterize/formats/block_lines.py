# SPDX-License-Identifier: Apache-2.0
"""Turns lines of numbers, one block request each, into a Trace of BLOCK records; what the block-trace formats share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from characterize.errors import FlextraceError
from characterize.layout import (
    BLOCK_DTYPE,
    NOT_MEASURED_U64,
    BlockForm,
    BlockOp,
    RecordKind,
)
from characterize.provenance import sha256_of, tool_version
from characterize.requests import SECTOR_BYTES
from characterize.trace import Header, Trace

# start_ns, device, sector, bytes, op
Row = tuple[int, int, int, int, BlockOp]

_LIMITS = (("time", 2**63), ("device", 2**32), ("sector", 2**63 // SECTOR_BYTES), ("size", 2**32))


def read_lines(path: Path, parse: Callable[[str], Row], skip_lines: int = 0) -> list[Row]:
    """Parse every line of a file that is not empty.

    Parameters
    ----------
    path : Path
    parse : callable
        Row of a line; raises ValueError (with a reason) where the line is not in the format.
    skip_lines : int
        Lines at the begin that carry no request.

    Raises
    ------
    FlextraceError
        A line is not in the format or has a number out of range; the message has the line's number and text.
    """
    rows = []
    with path.open(encoding="utf-8", errors="replace") as stream:
        for number, line in enumerate(stream, start=1):
            text = line.strip()
            if number <= skip_lines or not text:
                continue
            try:
                row = parse(text)
                for value, (what, limit) in zip(row, _LIMITS, strict=False):
                    if not 0 <= value < limit:
                        raise ValueError(f"{what} {value} is out of range")
            except ValueError as error:
                raise FlextraceError(f"{path}, line {number}: {error}, in {text[:80]!r}") from error
            rows.append(row)
    if not rows:
        raise FlextraceError(f"{path} has no requests")
    return rows


def trace_of_rows(path: Path, name: str, rows: list[Row], metadata: dict[str, Any]) -> Trace:
    """The trace: rows sorted by their start (stable), durations unknown.

    Parameters
    ----------
    path : Path
        Where the rows are from, for the lineage.
    name : str
        Name of the format.
    rows : list of Row
    metadata : dict
        What else the format knows.
    """
    columns = np.array(rows, np.int64)
    columns = columns[np.argsort(columns[:, 0], kind="stable")]
    block = np.zeros(len(columns), BLOCK_DTYPE)
    block["kind"], block["form"] = RecordKind.BLOCK, BlockForm.REQUEST
    for place, field in enumerate(("start_ns", "device", "sector", "bytes", "op")):
        block[field] = columns[:, place]
    block["queued_ns"] = NOT_MEASURED_U64
    header = Header(
        start_monotonic_ns=int(block["start_ns"][0]),
        end_monotonic_ns=int(block["start_ns"][-1]),
        metadata={
            "made_by": f"flextrace import {tool_version()}",
            "imported": {"format": name, "path": str(path), "sha256": sha256_of(path)},
            "durations": "unknown",
            **metadata,
        },
    )
    return Trace(header, {RecordKind.BLOCK: block})

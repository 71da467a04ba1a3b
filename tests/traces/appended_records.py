# SPDX-License-Identifier: Apache-2.0
"""Turns arrays of IO records into the end of a trace file, in the order given and piece by piece: for traces that
``characterize.write`` would put into another order, or that are larger than memory."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from characterize.layout import HEADER_DTYPE, TRACE_HEADER_BYTES, TRACE_RECORD_BYTES, RecordKind


def append_records(trace: Path, pieces: Iterable[np.ndarray]) -> None:
    """Append IO records to a trace whose JSON block is in its header."""
    with trace.open("r+b") as stream:
        header = np.frombuffer(stream.read(TRACE_HEADER_BYTES), HEADER_DTYPE).copy()
        stream.seek(0, os.SEEK_END)
        for piece in pieces:
            stream.write(np.ascontiguousarray(piece).data)
        records = (stream.tell() - TRACE_HEADER_BYTES) // TRACE_RECORD_BYTES
        header["count"][0, RecordKind.IO] += records - header["record_count"][0]
        header["record_count"] = records
        stream.seek(0)
        stream.write(header.tobytes())

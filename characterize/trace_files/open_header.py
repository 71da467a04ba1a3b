# SPDX-License-Identifier: Apache-2.0
"""Turns a trace file, or an archive of one, into what it says of itself; its records are not read."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np

from characterize.layout import HEADER_DTYPE, RECORD_DTYPE
from characterize.trace import Content, Trace, trace_of
from characterize.trace_files.expansion import is_trace_archive
from characterize.trace_files.trace_head import json_text, read_head


def open_header(path: Path) -> Trace:
    """A trace without records, with its header and its warnings.

    Raises
    ------
    FlextraceError
        As `characterize.trace.open`.
    """
    text: bytes | None
    if is_trace_archive(path):
        # pyarrow is slow to import, and most traces do not need it.
        head, file_bytes, text = importlib.import_module("characterize.trace_files.archive").read_frame(path)
    else:
        head, file_bytes = read_head(path)
        text = json_text(path, np.frombuffer(head, HEADER_DTYPE)[0], head, file_bytes)
    arrays = {kind: np.zeros(0, dtype) for kind, dtype in RECORD_DTYPE.items()}
    return trace_of(path, Content(head, file_bytes, arrays, np.zeros(0, np.int64), text))

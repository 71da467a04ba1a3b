# SPDX-License-Identifier: Apache-2.0
"""Turns traces of other tools into flextrace traces: one module per format, found by name."""

from __future__ import annotations

import importlib
from pathlib import Path

from characterize.errors import FlextraceError
from characterize.trace import Trace

# Name of a format: its module in this package (imported when it is used) and what it is.
FORMATS = {
    "cloudphysics": ("cloudphysics", "CSV with a header line: version, time (s), SCSI opcode, bytes, 512-byte block"),
    "mqsim": ("mqsim", "arrival (ns), device, start sector, sectors, 1 = read 0 = write"),
}


def read_foreign(path: Path, name: str) -> Trace:
    """Read a trace of another tool.

    Parameters
    ----------
    path : Path
    name : str
        Key of `FORMATS`.

    Returns
    -------
    Trace
        BLOCK records; times are the other tool's, from 0 on if it has no clock.

    Raises
    ------
    FlextraceError
        Unknown format, a file that cannot be read, a line that is not in the format (named by its number).
    """
    if name not in FORMATS:
        raise FlextraceError(f"format {name!r} is unknown: choose one of {', '.join(FORMATS)}", 2)
    try:
        return importlib.import_module(f"characterize.formats.{FORMATS[name][0]}").read(path)
    except OSError as error:
        raise FlextraceError(f"cannot read {path}: {error.strerror}") from error

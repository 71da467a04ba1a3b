# SPDX-License-Identifier: Apache-2.0
"""Turns the name of a file that is read at once into its bytes, unless it is one that never ends."""

from __future__ import annotations

import stat
from pathlib import Path

from characterize.errors import FlextraceError, remedy_of


def read_whole(path: Path, what: str) -> bytes:
    """All bytes of a file, or of a pipe.

    Parameters
    ----------
    path : Path
    what : str
        Such a file is called; for messages.

    Raises
    ------
    FlextraceError
        It cannot be read, or is a device: /dev/zero fills the memory, and a disk may.
    """
    try:
        mode = path.stat().st_mode
        if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
            raise FlextraceError(f"cannot read {what} {path}: it is a device; name a file, or a pipe")
        return path.read_bytes()
    except OSError as error:
        raise FlextraceError(f"cannot read {what} {path}: {error.strerror}{remedy_of(error)}") from error

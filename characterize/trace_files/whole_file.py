# SPDX-License-Identifier: Apache-2.0
"""Turns the name of a file that is read at once into its bytes, unless it is one that never ends."""

from __future__ import annotations

import os
import select
import stat
from pathlib import Path

from characterize.errors import FlextraceError, remedy_of
from characterize.units import format_bytes

BYTES_MAX = 1 << 30
"""Documents, tables and keys have some MB; what is larger is a trace, or a disk's image, that was named by mistake."""
WRITER_S = 2.0
"""Within which somebody has to begin to write into a pipe."""


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
        It cannot be read, is larger than any such file, or is a device: /dev/zero fills the memory, and a disk may. Or
        it is a pipe without a writer.
    """
    try:
        status = path.stat()
        mode = status.st_mode
        if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
            raise FlextraceError(f"cannot read {what} {path}: it is a device; name a file, or a pipe")
        if status.st_size > BYTES_MAX:
            raise FlextraceError(f"cannot read {what} {path}: it has {format_bytes(status.st_size)}; name another file")
        with open(path, "rb", opener=_open_soon) as stream:
            content = stream.read()
    except OSError as error:
        raise FlextraceError(f"cannot read {what} {path}: {error.strerror}{remedy_of(error)}") from error
    if not content and stat.S_ISFIFO(mode):
        raise FlextraceError(f"cannot read {what} {path}: it is a pipe into which nobody writes; name a file")
    return content


def _open_soon(path: str, flags: int) -> int:
    """Opens a pipe without waiting for ever for a writer: one that is there is waited for when it is read."""
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    os.set_blocking(descriptor, True)
    content = select.poll()
    content.register(descriptor, select.POLLIN)
    content.poll(WRITER_S * 1000)
    return descriptor

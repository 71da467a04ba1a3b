# SPDX-License-Identifier: Apache-2.0
"""Files with holes, and where a file has data by lseek(2)."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path

Ranges = list[tuple[int, int]]


def write_sparse(path: Path, ranges: Iterable[tuple[int, int]], size: int) -> None:
    """A file of this size with random data in these ranges ``(offset, end)``, on its device."""
    with path.open("wb") as stream:
        os.truncate(stream.fileno(), size)
        for offset, end in ranges:
            os.pwrite(stream.fileno(), os.urandom(end - offset), offset)
        os.fsync(stream.fileno())


def data_ranges(path: Path) -> Ranges:
    """``(offset, end)`` of what has data, in order."""
    ranges: Ranges = []
    with path.open("rb") as stream:
        data = _next(stream.fileno(), 0, os.SEEK_DATA)
        while data is not None:
            ranges.append((data, os.lseek(stream.fileno(), data, os.SEEK_HOLE)))
            data = _next(stream.fileno(), ranges[-1][1], os.SEEK_DATA)
    return ranges


def _next(descriptor: int, offset: int, whence: int) -> int | None:
    """None where lseek says that there is none up to the end."""
    try:
        return os.lseek(descriptor, offset, whence)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return None
        raise


def between(ranges: Iterable[tuple[int, int]], size: int) -> Ranges:
    """What lies before, between and behind sorted ranges of a file."""
    edges = [0, *(edge for bounds in ranges for edge in bounds), size]
    return [(begin, end) for begin, end in zip(edges[::2], edges[1::2], strict=True) if begin < end]

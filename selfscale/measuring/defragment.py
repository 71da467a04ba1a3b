# SPDX-License-Identifier: Apache-2.0
"""Turns files that overwriting has scattered over their storage into files that lie in order.

btrfs overwrites nothing in place: every write goes to a new one, so that files which points have written at random lie
in pieces, and how many requests a read takes depends on the points before (docs/decisions/0023). Files of applications
are mostly written in one go, as those of points are when they are laid out. So what a point uses begins in that state,
and so do the files of each round of a comparison.
"""

from __future__ import annotations

import fcntl
import math
import os
import struct
import time
from contextlib import suppress
from pathlib import Path

from selfscale.measuring.environment import mount_of

FILE_SYSTEM = "btrfs"
DEFRAG_RANGE = 0x40309410
"""BTRFS_IOC_DEFRAG_RANGE of linux/btrfs.h: the kernel writes anew what lies in pieces, and leaves the rest."""
ARGUMENTS = struct.Struct("=QQQII16x")
"""struct btrfs_ioctl_defrag_range_args: start, length, flags, bytes of a piece, compression."""
START_IO = 2
"""Flag: have it written back, not only made dirty."""
PIECE_BYTES = 512 << 10
"""Pieces from this size on are left where they are: few requests are longer, and compress-force makes no larger."""
STEP_BYTES = 4 << 20
"""Between two looks at the clock: a disk that seeks for every page takes ten seconds. No less than a piece, or what one
point has made the next one would make again."""
SECONDS_MAX = 10.0
"""For all files. A point scatters what it writes in seconds, which takes about as long to be put in order."""


def defragment(directory: Path, file_bytes: float) -> None:
    """Put the files of an image in order, where they lie on a file system that scatters them.

    What storage refuses (it is full, or the kernel is older) stays as it is: the points can be measured all the same.

    Parameters
    ----------
    directory : Path
    file_bytes : float
        Of each file, what the point uses: with the rest, those of a small working set would wait for large ones.
    """
    if not _scatters(directory):
        return
    end = time.monotonic() + SECONDS_MAX
    for path in sorted(directory.glob("f*")):
        with suppress(OSError):
            _defragment_file(path, file_bytes, end)


def _scatters(directory: Path) -> bool:
    try:
        return mount_of(directory)[0] == FILE_SYSTEM
    except OSError:  # it is gone, which whoever uses it says
        return False


def _defragment_file(path: Path, used_bytes: float, end: float) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        for start in range(0, math.ceil(min(used_bytes, os.fstat(descriptor).st_size)), STEP_BYTES):
            if time.monotonic() > end:
                return
            fcntl.ioctl(descriptor, DEFRAG_RANGE, ARGUMENTS.pack(start, STEP_BYTES, START_IO, PIECE_BYTES, 0))
    finally:
        os.close(descriptor)

# SPDX-License-Identifier: Apache-2.0
"""Turns free memory into memory that the host of a virtual machine has backed, so that runs find it alike.

A host may take back the memory that a guest has free (free page reporting), in blocks of 2 MiB. The first touch of such
a page then takes several times as long: of files in memory 0.5 GB/s are read instead of 3 to 4, by which one run is
slower than the next. Of a block that was given out in part the rest stays in smaller pieces that nobody has touched.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path

BUDDYINFO = Path("/proc/buddyinfo")
BACKED_BYTES = 1 << 30
"""Of whole blocks, beside all that is in smaller pieces."""
REPORTED_ORDER = 9
"""Of the pieces that the host takes back (pageblock_order)."""
MADV_POPULATE_WRITE = 23


def back_free_memory() -> int:
    """Touch and free the memory that is given out next, but not more than half of what is free; the number of bytes.

    Small pieces are given out first, then what was freed last. A host is told of it only after seconds.
    """
    page_bytes = os.sysconf("SC_PAGESIZE")
    free_bytes = os.sysconf("SC_AVPHYS_PAGES") * page_bytes
    size_bytes = min(pieces_bytes(BUDDYINFO.read_text(), page_bytes) + BACKED_BYTES, free_bytes // 2)
    with mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        # Page by page: a huge page would be taken from a whole block.
        memory.madvise(mmap.MADV_NOHUGEPAGE)
        memory.madvise(MADV_POPULATE_WRITE)
        return size_bytes


def pieces_bytes(buddyinfo: str, page_bytes: int) -> int:
    """Free bytes in pieces smaller than the host takes back, of /proc/buddyinfo."""
    counts = (line.split()[4 : 4 + REPORTED_ORDER] for line in buddyinfo.splitlines())
    return sum(int(count) << order for zone in counts for order, count in enumerate(zone)) * page_bytes

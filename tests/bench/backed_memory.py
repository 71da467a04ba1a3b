# SPDX-License-Identifier: Apache-2.0
"""Turns free memory into memory that the host of a virtual machine has backed, so that runs find it alike.

A host may take back the memory that a guest has free (free page reporting). The first touch of such a page then takes
several times as long, by which writes into new pages of the page cache are slower in one run than in the next.
"""

from __future__ import annotations

import mmap
import os

BACKED_BYTES_MAX = 1 << 30


def back_free_memory(bytes_max: int = BACKED_BYTES_MAX) -> int:
    """Touch and free as much memory, but not more than half of what is free; the number of bytes.

    What was freed last is given out first, and is reported to the host only after seconds.
    """
    page_bytes = os.sysconf("SC_PAGESIZE")
    size_bytes = min(bytes_max, os.sysconf("SC_AVPHYS_PAGES") * page_bytes // 2)
    with mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE):
        return size_bytes

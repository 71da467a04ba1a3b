# SPDX-License-Identifier: Apache-2.0
"""Turns what a profile says of its machine into what the kernel reads ahead by there (mm/readahead.c)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

PAGE_BYTES = 4096
LARGE_FOLIOS_SINCE = {"xfs": (5, 18), "ext4": (6, 16), "overlay": (6, 16)}
"""Linux since which a file system caches files in folios of several pages; btrfs and others do not, but for trials.
What an overlay lies on it does not tell; mostly that is ext4."""
OWN_DEVICE = ("btrfs",)
"""File systems whose backing device is none of the block layer's, with `OWN_REQUEST_BYTES` (bdi_alloc)."""
OWN_REQUEST_BYTES = 128 << 10
REQUEST_BYTES = 1280 << 10
"""Of a block device, where a profile does not say it (BLK_DEF_MAX_SECTORS_CAP, until Linux 6.15)."""
WINDOW_BYTES = 128 << 10
"""Largest window, where the kernel does not say it, as of an overlay: the one that disks have unless somebody sets
another (VM_READAHEAD_PAGES)."""


class ReadAheadRules(NamedTuple):
    """What read-ahead goes by.

    Attributes
    ----------
    window_pages : int
        Largest window (ra_pages).
    request_pages : int
        Most that is read at once for a request that is larger than that (io_pages).
    large_folios : bool
        Files are cached in folios of several pages (mapping_large_folio_support).
    """

    window_pages: int
    request_pages: int
    large_folios: bool


def read_ahead_rules(environment: Mapping[str, Any]) -> ReadAheadRules:
    """The rules of a profile's machine.

    Parameters
    ----------
    environment : mapping of str to Any
        Its ``kernel``, ``filesystem``, ``read_ahead_bytes`` and ``request_bytes``; where they are missing those of this
        kernel and ext4.
    """
    filesystem = environment.get("filesystem") or "ext4"
    since = LARGE_FOLIOS_SINCE.get(filesystem)
    kernel = re.match(r"(\d+)\.(\d+)", environment.get("kernel") or "")
    window_bytes = environment.get("read_ahead_bytes")
    request_bytes = OWN_REQUEST_BYTES if filesystem in OWN_DEVICE else environment.get("request_bytes") or REQUEST_BYTES
    return ReadAheadRules(
        window_pages=max(1, round((WINDOW_BYTES if window_bytes is None else window_bytes) / PAGE_BYTES)),
        request_pages=max(1, int(request_bytes // PAGE_BYTES)),
        large_folios=since is not None and (kernel is None or (int(kernel[1]), int(kernel[2])) >= since),
    )

# SPDX-License-Identifier: Apache-2.0
"""Turns a moment into how fast this host copies memory just then: what no measurement on it can be steadier than."""

from __future__ import annotations

import time

import numpy as np

COPY_BYTES = 32 << 20
"""More than a core's caches hold."""
SECONDS = 0.15


def copy_bytes_per_s() -> float:
    """Bytes copied from one array to another over time."""
    source = np.ones(COPY_BYTES, np.uint8)
    target = np.ones_like(source)
    begin, copies = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - begin) < SECONDS or not copies:
        np.copyto(target, source)
        copies += 1
    return copies * COPY_BYTES / elapsed

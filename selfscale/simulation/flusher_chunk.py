# SPDX-License-Identifier: Apache-2.0
"""Turns the kernel's limit on dirty pages into what its flusher writes of a file before it looks again."""

from __future__ import annotations

CHUNK_PAGES_MIN, DIRTY_SCOPE = 1024, 8
"""MIN_WRITEBACK_PAGES, and the limit over the most of it (fs/fs-writeback.c, writeback_chunk_size)."""


def chunk_pages(dirty_limit_pages: float) -> int:
    """writeback_chunk_size, of storage that is fast enough for the most of it."""
    return int((dirty_limit_pages / DIRTY_SCOPE + CHUNK_PAGES_MIN) // CHUNK_PAGES_MIN * CHUNK_PAGES_MIN)

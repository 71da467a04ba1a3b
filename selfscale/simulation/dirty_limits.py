# SPDX-License-Identifier: Apache-2.0
"""Turns the kernel's limit on dirty pages into where its flusher begins, what that writes of a file before it looks
again, and where writers wait."""

from __future__ import annotations

BACKGROUND_FRAC = 0.5
"""Of the limit, where the flusher begins: vm.dirty_background_ratio over vm.dirty_ratio, by their defaults."""
HELD_FRAC = (BACKGROUND_FRAC + 1) / 2
"""Of the limit, what is dirty and on its way to storage where writers wait: the middle between it and the background
limit, where pauses begin (mm/page-writeback.c, dirty_freerun_ceiling)."""
CHUNK_PAGES_MIN, DIRTY_SCOPE = 1024, 8
"""MIN_WRITEBACK_PAGES, and the limit over the most of it (fs/fs-writeback.c, writeback_chunk_size)."""


def chunk_pages(dirty_limit_pages: float) -> int:
    """writeback_chunk_size, of storage that is fast enough for the most of it."""
    return int((dirty_limit_pages / DIRTY_SCOPE + CHUNK_PAGES_MIN) // CHUNK_PAGES_MIN * CHUNK_PAGES_MIN)

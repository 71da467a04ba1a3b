# SPDX-License-Identifier: Apache-2.0
"""Which pages of a file are in the page cache, by mincore(2), and how a test gets them there."""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path

import numpy as np

PAGE_BYTES = mmap.PAGESIZE
Ranges = list[tuple[int, int]]

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]


def resident_pages(path: Path) -> list[bool]:
    """What mincore(2) says of every page."""
    size = path.stat().st_size
    pages = (ctypes.c_ubyte * -(-size // PAGE_BYTES))()
    descriptor = os.open(path, os.O_RDONLY)
    address = _libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
    assert _libc.mincore(address, size, pages) == 0
    _libc.munmap(address, size)
    os.close(descriptor)
    return [bool(state & 1) for state in pages]


class _Cachestat(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("cache", "dirty", "writeback", "evicted", "recently_evicted")]


_SYS_CACHESTAT = 451


def reclaimed_pages(path: Path) -> int:
    """How many pages of a file the kernel took back, by cachestat(2); those dropped on demand do not count."""
    whole, found = (ctypes.c_uint64 * 2)(0, 0), _Cachestat()
    with path.open("rb") as file:
        assert _libc.syscall(_SYS_CACHESTAT, file.fileno(), whole, ctypes.byref(found), 0) == 0
    return found.evicted


def cached_ranges(path: Path) -> Ranges:
    """``(offset, end)`` in bytes of what is cached, in order; the last ends with the file at most."""
    size = path.stat().st_size
    edges = np.flatnonzero(np.diff([False, *resident_pages(path), False]))
    return [(int(first) * PAGE_BYTES, min(int(last) * PAGE_BYTES, size)) for first, last in edges.reshape(-1, 2)]


_COMPOUND_TAIL = 16  # bit of a frame's flags, Documentation/admin-guide/mm/pagemap.rst


def folio_pages(path: Path, ranges: Ranges | None = None) -> np.ndarray:
    """Of how many pages the folio of each page of a cached file is, by the flags of their frames; needs root.

    Of all its pages if no ranges are named, which have to be those of whole folios.
    """
    size = path.stat().st_size
    wanted = [(0, size)] if ranges is None else ranges
    indices = np.concatenate([np.arange(offset // PAGE_BYTES, -(-end // PAGE_BYTES)) for offset, end in wanted])
    tail = np.zeros(len(indices), bool)
    with path.open("rb") as file, mmap.mmap(file.fileno(), size, mmap.MAP_SHARED, mmap.PROT_READ) as mapped:
        mapped.madvise(mmap.MADV_RANDOM)
        for index in indices:
            mapped[int(index) * PAGE_BYTES]
        view = np.frombuffer(mapped, np.uint8)
        first = view.ctypes.data // PAGE_BYTES
        with Path("/proc/self/pagemap").open("rb", 0) as frames, Path("/proc/kpageflags").open("rb", 0) as flags:
            frames.seek(8 * first)
            entries = np.frombuffer(frames.read(8 * -(-size // PAGE_BYTES)), np.uint64)[indices]
            for at, frame in enumerate(entries & np.uint64((1 << 55) - 1)):
                flags.seek(8 * int(frame))
                tail[at] = int.from_bytes(flags.read(8), "little") >> _COMPOUND_TAIL & 1
        del view
    folio = np.cumsum(~tail)
    return np.bincount(folio)[folio]


def large_folio_share(path: Path, ranges: Ranges | None = None) -> float:
    """Which share of a cached file's pages is in folios of several pages; as `folio_pages`."""
    return float((folio_pages(path, ranges) > 1).mean())


def cache_only(path: Path, ranges: Ranges) -> None:
    """Bring these ranges of a file, and nothing else of it, into the page cache."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        for offset, end in ranges:
            for at in range(offset, end, PAGE_BYTES):
                os.pread(descriptor, 1, at)
    finally:
        os.close(descriptor)

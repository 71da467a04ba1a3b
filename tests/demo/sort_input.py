# SPDX-License-Identifier: Apache-2.0
"""Turns a size and a seed into a text file of random lines for GNU sort.

A line is that of the Sort Benchmark: 10 random printable characters as the key, 89 of payload, a newline. The thesis
sorted 4 files of 48 MB together (table 3.1).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

LINE_BYTES = 100
KEY_BYTES = 10
LINES_PER_CHUNK = 1 << 16
PAYLOAD = b" the quick brown fox jumps over the lazy dog, and the disk arm follows it from track to track"
PRINTABLE = np.frombuffer(b"".join(bytes([code]) for code in range(33, 127)), np.uint8)


def write_sort_input(path: Path, size_bytes: int, seed: int = 1) -> int:
    """Write whole lines until the file has at least `size_bytes`.

    Parameters
    ----------
    path : Path
        Must not exist.
    size_bytes : int
        Wanted size in bytes, at least 1; rounded up to whole lines of 100 bytes.
    seed : int
        The same seed and size give the same file.

    Returns
    -------
    int
        Bytes written.
    """
    lines = -(-size_bytes // LINE_BYTES)
    generator = np.random.default_rng(seed)
    with path.open("xb") as stream:
        for first in range(0, lines, LINES_PER_CHUNK):
            count = min(LINES_PER_CHUNK, lines - first)
            chunk = np.empty((count, LINE_BYTES), np.uint8)
            chunk[:, :KEY_BYTES] = PRINTABLE[
                generator.integers(len(PRINTABLE), size=(count, KEY_BYTES), dtype=np.uint8)
            ]
            chunk[:, KEY_BYTES:-1] = np.frombuffer(PAYLOAD[: LINE_BYTES - KEY_BYTES - 1], np.uint8)
            chunk[:, -1] = ord("\n")
            stream.write(chunk.data)
    return lines * LINE_BYTES


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.demo.sort_input", description="Make a text file to sort.")
    parser.add_argument("path", type=Path)
    parser.add_argument("size_bytes", type=int)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args(argv)
    print(f"{write_sort_input(arguments.path, arguments.size_bytes, arguments.seed)} bytes in {arguments.path}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

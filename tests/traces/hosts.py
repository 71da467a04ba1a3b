# SPDX-License-Identifier: Apache-2.0
"""Recordings of several machines, each with a clock of its own."""

from pathlib import Path

import characterize as package
from tests.traces.made_trace import made_trace, read

BLOCK = 4096
DAY_NS = 86_400 * 10**9


def recording(directory: Path, name: str, rows: list[dict], **fields: object) -> Path:
    return package.write(made_trace(rows, **fields), directory / name)


def two_hosts(directory: Path) -> list[Path]:
    """Recordings of two machines with the same numbers and paths."""
    paths = []
    for host in range(2):
        rows = [read(BLOCK * at, BLOCK, 1000 + 20 * at + host, 30, thread=6, process=5) for at in range(20)]
        blocks = [{"op": 1, "bytes": BLOCK, "sector": 8 * at, "start_ns": 1000 + 20 * at + host} for at in range(20)]
        paths.append(
            recording(
                directory,
                f"{host}.iotrace",
                rows[: 20 - host],
                blocks=blocks[: 20 - host],
                files=[{"file": 1, "size_bytes": 100, "device": 8 << 20}],
                paths={1: "/data"},
                tasks=[{"thread": 5, "process": 5, "comm": b"sort"}],
                start_monotonic_ns=900,
                start_realtime_ns=DAY_NS + 900,
                end_monotonic_ns=2000,
            )
        )
    return paths

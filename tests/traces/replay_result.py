# SPDX-License-Identifier: Apache-2.0
"""What the engine says of a replay, of all that comparisons read."""

from __future__ import annotations

from typing import Any


def result(read_ns: float = 20e3, write_ns: float = 10e3, throughput: float = 100e6, **more: Any) -> dict[str, Any]:
    return {
        "throughput_in_io_bytes_per_s": throughput,
        "throughput_bytes_per_s": throughput / 2,
        "time_in_sync_s": 0.5,
        "response_time": {
            "read": {"count": 300, "mean_ns": read_ns},
            "write": {"count": 100, "mean_ns": write_ns},
            "sync": {"count": 7, "mean_ns": 1e6},
        },
        **more,
    }

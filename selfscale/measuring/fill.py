# SPDX-License-Identifier: Apache-2.0
"""Turns a block device that was perhaps never written into one whose reads come from its medium.

Flash that holds nothing at an address, or was told to discard it, answers without a look at its cells, many times as
fast as it ever will again.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from characterize.errors import FlextraceError
from characterize.units import format_bytes, format_duration
from characterize.workload import Workload
from replayer.result_text import failures
from selfscale.measuring.access import Access
from selfscale.measuring.measurable_sizes import align
from selfscale.measuring.point_trace import REQUESTS_MAX, write_willy
from selfscale.measuring.scratch import scratch_directory, willy_bytes

REQUEST_BYTES = 1 << 20
INTERVAL_MS = 1000
TOLD_EVERY_S = 10.0


def fill(size_bytes: float, access: Access, confirm: str | None, say: Callable[[str], None]) -> None:
    """Write the first bytes of a device once, in two runs, with data that does not compress.

    Parameters
    ----------
    size_bytes : float
        A multiple of 4 KiB.
    access : Access
        Of a device that may be written.
    confirm : str or None
        Its serial number or size.
    say : callable
        Is told now and then how far it is.

    Raises
    ------
    FlextraceError
        The device refuses it, see `replayer.run.replay`, or a write failed.
    """
    from replayer.run import replay  # noqa: PLC0415
    from replayer.willy import requests_needed  # noqa: PLC0415 (pandas and numba are slow to import)

    say(f"writing the first {format_bytes(size_bytes)} of {access.device}")
    begin = told = time.monotonic()
    written_bytes = 0

    def on_interval(line: dict[str, Any]) -> bool:
        nonlocal told, written_bytes
        written_bytes += line["bytes"]
        now = time.monotonic()
        if now - told >= TOLD_EVERY_S and written_bytes:
            told = now
            left_s = max(0.0, size_bytes / written_bytes - 1) * (now - begin)
            say(f"{format_bytes(written_bytes)} written; ETA {format_duration(left_s)}")
        return False

    size_mean = max(REQUEST_BYTES, align(size_bytes / REQUESTS_MAX))
    workload = Workload(size_bytes, 1.0, 0.0, float(size_mean), 1.0)
    requests = requests_needed(workload)  # with fewer Willy does not see to it that every byte is touched
    place = scratch_directory(willy_bytes(requests), "the trace of what is written")
    with tempfile.TemporaryDirectory(prefix="flextrace-fill-", dir=place) as scratch:
        trace = Path(scratch) / "fill.iotrace"
        write_willy(workload, trace, requests, seed=0, device=access.device)
        options = access.replay_options(confirm)
        result = replay(
            trace, None, timing="asap", order="thread", interval_ms=INTERVAL_MS, on_interval=on_interval, **options
        )
    if failed := failures(result, "io"):
        raise FlextraceError(
            f"cannot fill {access.device}: of {requests} writes {failed}; leave --fill out to measure what it still "
            "does, or take another device"
        )

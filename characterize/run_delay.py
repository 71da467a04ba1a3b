# SPDX-License-Identifier: Apache-2.0
"""Turns bits of a record's flags into how long of its call the thread was ready to run but waited for a processor."""

from __future__ import annotations

import numpy as np

from characterize.layout import IO_RUN_DELAY_ALL, IO_RUN_DELAY_NONE, IO_RUN_DELAY_SHIFT
from characterize.references import Columns

_PARTS = IO_RUN_DELAY_ALL - IO_RUN_DELAY_NONE


class RunDelays:
    """Follows reads, writes and syncs that come in chunks: their times, and what of these waits for a processor."""

    def __init__(self) -> None:
        # Integers, whose sum does not depend on the order: duration of all, of those that are known, and delay x parts.
        self._sums = {name: [0, 0, 0] for name in ("read", "write", "sync")}

    def add(self, requests: Columns, syncs: Columns) -> None:
        """Count a chunk; the columns of `characterize.requests` and of `characterize.response_time.sync_columns`."""
        duration, stored = requests["end_ns"] - requests["start_ns"], stored_run_delays(requests["flags"])
        for name, those in (("read", requests["read"]), ("write", ~requests["read"])):
            self._count(name, duration[those], stored[those])
        self._count("sync", syncs["end_ns"] - syncs["start_ns"], syncs["run_delay"])

    def _count(self, name: str, duration_ns: np.ndarray, stored: np.ndarray) -> None:
        known = stored >= IO_RUN_DELAY_NONE
        delays = duration_ns[known] * (stored[known].astype(np.int64) - IO_RUN_DELAY_NONE)
        self._add(name, [int(duration_ns.sum()), int(duration_ns[known].sum()), int(delays.sum())])

    def merge(self, following: RunDelays) -> None:
        """Count what `following` counted."""
        for name, sums in following._sums.items():
            self._add(name, sums)

    def _add(self, name: str, sums: list[int]) -> None:
        self._sums[name] = [mine + other for mine, other in zip(self._sums[name], sums, strict=True)]

    def shares(self) -> dict[str, dict[str, float] | None]:
        """By kind: the ``share`` of the times that are known, and the ``measured_share`` of all; None without any."""
        return {
            name: {"share": delay / _PARTS / known, "measured_share": known / total} if known else None
            for name, (total, known, delay) in self._sums.items()
        }


def stored_run_delays(flags: np.ndarray) -> np.ndarray:
    """The bits, shape (n,): 0 where it was not measured."""
    return (flags >> np.uint32(IO_RUN_DELAY_SHIFT)) & np.uint32(IO_RUN_DELAY_ALL)


def run_delay_shares(flags: np.ndarray) -> np.ndarray:
    """Shares of the calls' durations.

    Parameters
    ----------
    flags : ndarray of uint32, shape (n,)
        Of IO records, or of FILEOP records of FSYNC or FDATASYNC.

    Returns
    -------
    ndarray of float64, shape (n,)
        0 to 1; NaN where it was not measured: before format 1.6, of what is no system call, and on kernels without
        CONFIG_SCHED_INFO.
    """
    stored = stored_run_delays(flags)
    share = (stored.astype(float) - IO_RUN_DELAY_NONE) / _PARTS
    return np.where(stored >= IO_RUN_DELAY_NONE, share, np.nan)

# SPDX-License-Identifier: Apache-2.0
"""Turns bits of a record's flags into how long of its call the thread was ready to run but waited for a processor."""

from __future__ import annotations

import numpy as np

from characterize.layout import IO_RUN_DELAY_ALL, IO_RUN_DELAY_NONE, IO_RUN_DELAY_SHIFT

_PARTS = IO_RUN_DELAY_ALL - IO_RUN_DELAY_NONE


class RunDelays:
    """Sums over calls of one kind: of their times, and of what of these their threads waited for a processor."""

    def __init__(self) -> None:
        # Integers, whose sum does not depend on the order: duration of all, of those that are known, and delay x parts.
        self._sums = [0, 0, 0]

    def add(self, duration_ns: np.ndarray, stored: np.ndarray) -> None:
        """Add calls; `stored` as from `stored_run_delays`."""
        known = stored >= IO_RUN_DELAY_NONE
        delays = duration_ns[known] * (stored[known].astype(np.int64) - IO_RUN_DELAY_NONE)
        self._add([int(duration_ns.sum()), int(duration_ns[known].sum()), int(delays.sum())])

    def merge(self, following: RunDelays) -> None:
        """Add what `following` has added."""
        self._add(following._sums)

    def _add(self, sums: list[int]) -> None:
        self._sums = [mine + other for mine, other in zip(self._sums, sums, strict=True)]

    def shares(self) -> dict[str, float] | None:
        """``share`` of the time of calls of which it is known, and the ``measured_share`` of all; None without any."""
        total, known, delay = self._sums
        return {"share": delay / _PARTS / known, "measured_share": known / total} if known else None


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

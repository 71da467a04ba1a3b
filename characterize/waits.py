# SPDX-License-Identifier: Apache-2.0
"""Turns WAKE records into columns: which calls waited for those of other threads, and how long their threads slept."""

from __future__ import annotations

import numpy as np

from characterize.references import Columns
from characterize.requests import actor_columns


def wait_columns(wakes: np.ndarray, io: np.ndarray, fileops: np.ndarray) -> Columns:
    """Columns of `characterize.requests.actor_columns`, and ``slept_ns``, of waits.

    Parameters
    ----------
    wakes : ndarray
        WAKE records.
    io, fileops : ndarray
        IO and FILEOP records, among them their calls, which know the file; 0 where the call is not among them.
    """
    file = np.zeros(len(wakes), np.int64)
    if len(wakes):
        number, first = np.unique(np.concatenate([io["id"], fileops["id"]]), return_index=True)
        at = np.minimum(np.searchsorted(number, wakes["id"]), max(len(number) - 1, 0))
        there = np.isin(wakes["id"], number) & (wakes["id"] > 0)
        file[there] = np.concatenate([io["file"], fileops["file"]])[first[at[there]]]
    return {**actor_columns(wakes, file), "slept_ns": _slept(wakes)}


def slept_before(calls: np.ndarray, wakes: np.ndarray) -> np.ndarray:
    """How long the thread slept before each call until another one woke it, 0 where that is not known.

    Parameters
    ----------
    calls : ndarray
        IO records.
    wakes : ndarray
        WAKE records.

    Returns
    -------
    ndarray of int64, shape (n,)
    """
    slept = np.zeros(len(calls), np.int64)
    if len(wakes):
        number, first = np.unique(wakes["id"], return_index=True)
        there = np.isin(calls["id"], number) & (calls["id"] > 0)
        slept[there] = _slept(wakes)[first[np.searchsorted(number, calls["id"][there])]]
    return slept


def _slept(wakes: np.ndarray) -> np.ndarray:
    """No longer than since the machine started, whatever a damaged record says: sums are of int64."""
    return np.minimum(wakes["slept_ns"], wakes["start_ns"]).astype(np.int64)

# SPDX-License-Identifier: Apache-2.0
"""Turns a byte of a record into the share of the time before its call for which the thread had a processor."""

from __future__ import annotations

import numpy as np

from characterize.layout import PROCESSOR_SHARE_ALL, PROCESSOR_SHARE_NONE


def processor_shares(stored: np.ndarray) -> np.ndarray:
    """Shares of the time since the thread's recorded call before.

    Parameters
    ----------
    stored : ndarray of uint8, shape (n,)
        `processor_share` of IO or FILEOP records.

    Returns
    -------
    ndarray of float64, shape (n,)
        0 to 1; NaN where it was not measured.
    """
    share = (stored.astype(float) - PROCESSOR_SHARE_NONE) / (PROCESSOR_SHARE_ALL - PROCESSOR_SHARE_NONE)
    return np.where(stored >= PROCESSOR_SHARE_NONE, share, np.nan)


def computed_ns(pause_ns: np.ndarray, stored: np.ndarray) -> np.ndarray:
    """How much of pauses is computing, where that was measured; integers, whose sum does not depend on their order.

    Parameters
    ----------
    pause_ns : ndarray of int64, shape (n,)
    stored : ndarray of uint8, shape (n,)
        As `processor_shares` has it, none of them 0.

    Returns
    -------
    ndarray of int64, shape (n,)
    """
    return pause_ns * (stored.astype(np.int64) - PROCESSOR_SHARE_NONE) // (PROCESSOR_SHARE_ALL - PROCESSOR_SHARE_NONE)

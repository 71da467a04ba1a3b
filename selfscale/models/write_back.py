# SPDX-License-Identifier: Apache-2.0
"""Turns a working set and the kernel's limit on dirty pages into what is written back of it, and in how long pieces.

Up to the limit nothing is written back: blocks are dirtied again. Behind it writers wait for storage, and what is dirty
stays at a share of the limit, whatever the working set: a write that meets a dirty block costs storage nothing, so that
the share written back is that of the blocks which are clean.
"""

from __future__ import annotations

import numpy as np

ONSET = 1.02
"""Times the limit, where half of the machines have begun to write back."""
ONSET_WIDTH = 0.01
"""Of the limit; a smooth step, so that the limit can be searched for."""


def kept_frac(unique_bytes: np.ndarray, limit_bytes: np.ndarray | float, stays_frac: np.ndarray | float) -> np.ndarray:
    """Share of the written bytes that meet a dirty block.

    Parameters
    ----------
    unique_bytes : ndarray, shape (n,)
    limit_bytes : float
        Working set from which on is written back.
    stays_frac : float
        Share of it that stays dirty from there on.
    """
    begun = 1 / (1 + np.exp(np.clip((ONSET - unique_bytes / limit_bytes) / ONSET_WIDTH, -60, 60)))
    stays = np.minimum(stays_frac, 1) * limit_bytes / unique_bytes
    return 1 - begun * (1 - np.minimum(stays, 1))


def neighbour_frac(kept: np.ndarray, process_num: np.ndarray) -> np.ndarray:
    """Share of the blocks that are dirty where write-back comes by: it writes them with their neighbours.

    It goes round one file. x times as many writes after a block was cleaned it is dirty with 1 - exp(-x); `kept`, the
    mean of a round, is 1 - (1 - exp(-x)) / x, here solved for x within 6 %. Of several files, one of each process, it
    finds no more dirty than there is in the mean (measured on a device limited in requests; docs/decisions/0016).
    """
    round_frac = 1 - np.exp(-kept * (2 - kept) / np.maximum(1 - kept, 1e-3))
    return kept + (round_frac - kept) / process_num

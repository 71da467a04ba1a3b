# SPDX-License-Identifier: Apache-2.0
"""Turns all requests of a trace into numbers of their blocks that follow each other within every request, by sorting.

`characterize.references` numbers blocks as they come, and so not in a row.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from characterize.references import BLOCK_BYTES


def dense_blocks(requests: pd.DataFrame) -> tuple[np.ndarray, np.ndarray, int]:
    """Number the 4 KiB blocks that requests touch 0, 1, 2 ... without holes, without listing them.

    Overlapping and adjacent requests of a file form runs; the blocks of a run are numbered through, so that the blocks
    of one request are ``first, first + 1, ...``.

    Returns
    -------
    first, blocks : ndarray of int64, shape (n,)
        First block and number of blocks of every request, in the order of `requests`.
    distinct : int
        Number of distinct blocks.
    """
    offset, file = requests["offset"].to_numpy(), requests["file"].to_numpy()
    low = offset // BLOCK_BYTES
    high = (offset + requests["bytes"].to_numpy() - 1) // BLOCK_BYTES + 1
    if not len(low):
        return low, high, 0
    order = np.lexsort((low, file))
    low, high, file = low[order], high[order], file[order]
    reached = pd.Series(high).groupby(file).cummax().to_numpy()
    new_run = np.ones(len(low), bool)
    new_run[1:] = (file[1:] != file[:-1]) | (low[1:] > reached[:-1])
    heads = np.flatnonzero(new_run)
    tails = np.append(heads[1:], len(low)) - 1
    base = np.concatenate([[0], np.cumsum(reached[tails] - low[heads])])
    run = np.cumsum(new_run) - 1
    first = np.empty_like(low)
    blocks = np.empty_like(low)
    first[order] = base[run] + (low - low[heads][run])
    blocks[order] = high - low
    return first, blocks, int(base[-1])

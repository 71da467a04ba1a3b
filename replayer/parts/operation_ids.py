# SPDX-License-Identifier: Apache-2.0
"""Turns ids of operations into others that no operation before has, for traces of several passes or parts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

IDS_END = 2**63


def put_behind(columns: Sequence[np.ndarray], taken: int) -> int:
    """Give operations ids above `taken`; as far apart as they were or, where there is no room for that, in a row.

    A recorder gives each thread a range of 2^40 ids, so that those of many threads leave little room.

    Parameters
    ----------
    columns : sequence of ndarray of uint64
        Ids and causes; changed in place. 0 is that of none, and stays.
    taken : int
        The largest id so far.

    Returns
    -------
    int
        The largest id now.
    """
    top = max(int(column.max(initial=0)) for column in columns)
    if taken + top < IDS_END:
        for column in columns:
            column[column > 0] += np.uint64(taken)
        return taken + top
    known = np.unique(np.concatenate(columns))
    known = known[known > 0]
    for column in columns:
        number = np.searchsorted(known, column).astype(np.uint64)
        column[:] = np.where(column > 0, number + np.uint64(taken + 1), np.uint64(0))
    return taken + len(known)

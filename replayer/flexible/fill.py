# SPDX-License-Identifier: Apache-2.0
"""Turns short-lived files into one that fills its blocks, which leaves room for a larger footprint.

A cache misses every block once, however little of it is used: where a larger footprint is to have as few misses among
as many requests, its bytes have to be in few blocks. What lives one after the other and is small (journals) has the end
of a block to itself for every one: such files become one, in which each begins where the one before it ended.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from replayer.flexible.draft import Draft
from replayer.flexible.fold import join_files, known_files, lives_of


def fill_blocks(draft: Draft) -> None:
    """Put files that the trace makes and removes behind each other into one."""
    lives = lives_of(draft)["file"].to_numpy()
    if len(lives) < 2:
        return
    _, end, file = draft.intervals()
    length = pd.Series(end).groupby(file).max().reindex(lives, fill_value=0)
    draft.shift((length.cumsum() - length).reindex(file, fill_value=0).to_numpy())
    known = known_files(draft)
    join_files(draft, known, np.where(np.isin(known, lives), lives[0], known))
    draft.note("uniqueBytes", files_behind_each_other=len(lives))

# SPDX-License-Identifier: Apache-2.0
"""Where requests go on a larger footprint, and when they become smaller, by blocks that are counted one by one."""

from __future__ import annotations

import numpy as np
import pytest

from replayer.flexible.draft import Draft
from replayer.flexible.seq_frac import change_seq_frac
from replayer.flexible.size_mean import change_size_mean
from tests.flexible_traces import Recording

pytestmark = pytest.mark.parallel

BLOCK = 4096


@pytest.mark.parametrize("factor", [0.6, 0.8, 0.95])
def test_smaller_pages_lie_in_one_block_each(factor):
    recording = Recording()
    file = recording.file("/data", 1000 * BLOCK)
    for page in range(1000):
        recording.read(1, file, page * BLOCK, BLOCK)
    draft = Draft.of(recording.trace())
    change_size_mean(draft, factor * BLOCK)
    start, end, _ = draft.intervals()
    assert (end - start).mean() == pytest.approx(factor * BLOCK, rel=0.001)
    assert (start[1:] == end[:-1]).all()
    # Rounded to the next half of a block, up to every fifth lay across two.
    assert (start // BLOCK == (end - 1) // BLOCK).all()


def test_pages_stay_in_one_block_each_where_a_small_record_is_read_between_them():
    recording, random = Recording(), np.random.default_rng(0)
    file = recording.file("/data", 64 * BLOCK)
    for _ in range(160):
        recording.read(1, file, 24, 16)
        for page in random.permutation(60)[:10].tolist():
            recording.read(1, file, (1 + page) * BLOCK, BLOCK)
    draft = Draft.of(recording.trace())
    change_seq_frac(draft, 0.8, np.random.default_rng(0))
    assert draft.sequential().mean() == pytest.approx(0.8, abs=0.01)
    # Behind the record a page lies across two blocks, and so does what follows it. Enough others can move: of any a
    # third of the requests did.
    start, end, _ = draft.intervals()
    assert (start // BLOCK == (end - 1) // BLOCK).all()

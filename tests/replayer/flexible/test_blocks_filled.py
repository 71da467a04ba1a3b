# SPDX-License-Identifier: Apache-2.0
"""Where a larger footprint is to miss no more, its bytes fill their blocks, which are counted one by one."""

from __future__ import annotations

import numpy as np
import pytest

from characterize.layout import Fileop, IoFlag
from replayer.alter import Relative, alter
from replayer.flexible.draft import Draft
from replayer.flexible.fill import fill_blocks
from tests.traces.flexible_traces import Recording, database_like, replay_size_violations

pytestmark = pytest.mark.parallel

BLOCK = 4096


def journals(count=40, size=1500):
    """Files of two requests, the first of which is repeated; each is removed before the next one is made."""
    recording = Recording()
    table = recording.file("/table", 8 * count * BLOCK)
    for number in range(count):
        recording.read(1, table, (number * 7 % count) * 8 * BLOCK, BLOCK)
        file = recording.file(f"/journal.{number}", created=True)
        recording.operate(Fileop.OPEN, 1, file, flags=int(IoFlag.CREATED))
        recording.write(1, file, 0, size)
        recording.write(1, file, size, size)
        recording.write(1, file, 0, 12)
        recording.operate(Fileop.UNLINK, 1, file)
    return recording.trace()


def blocks_of(draft):
    start, end, file = draft.intervals()
    return {
        (name, block)
        for low, high, name in zip(start.tolist(), end.tolist(), file.tolist(), strict=True)
        for block in range(low // BLOCK, (high - 1) // BLOCK + 1)
    }


def test_journals_stand_behind_each_other():
    draft = Draft.of(journals())
    filled = draft.copy()
    fill_blocks(filled)
    assert len(blocks_of(draft)) == 80
    assert len(blocks_of(filled)) == 40 + -(-40 * 3000 // BLOCK)
    assert filled.unique_bytes() == draft.unique_bytes()
    assert (filled.sequential() == draft.sequential()).all()
    assert (filled.io["result"] == draft.io["result"]).all()
    assert len(np.unique(filled.io["file"])) == 2


def test_a_database_on_a_larger_footprint_misses_as_often():
    # With a block for the end of every journal it was 0.042 apart.
    altered, manifest = alter(database_like(), {"uniqueBytes": Relative(1.25)})
    assert manifest.notes["uniqueBytes"]["files_behind_each_other"] == 2000
    assert manifest.curve.held
    assert not manifest.off
    assert replay_size_violations(altered) == 0

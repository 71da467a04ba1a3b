# SPDX-License-Identifier: Apache-2.0
"""Of a trace of few requests no alteration calls met or held what is far off, as anybody sees by the numbers."""

from __future__ import annotations

import pytest

from replayer.alter import Relative, alter
from replayer.flexible.draft import UnreachableError
from tests.traces.flexible_traces import Recording

pytestmark = pytest.mark.parallel

BLOCK = 4096


def reads(blocks):
    recording = Recording()
    file = recording.file("/data", 64 * BLOCK)
    for block in blocks:
        recording.read(1, file, block * BLOCK, BLOCK)
    return recording.trace()


@pytest.mark.parametrize(
    "change",
    [{"uniqueBytes": Relative(2)}, {"uniqueBytes": Relative(0.5)}, {"sizeMean": Relative(100)}, {"readFrac": 0.5}],
    ids=str,
)
def test_what_one_request_cannot_have_is_refused(change):
    # By what one request makes of it, uniqueBytes were off by half, by twice and by a hundred times.
    with pytest.raises(UnreachableError, match="not reachable"):
        alter(reads([7]), change)


def test_one_request_of_ten_may_be_missing():
    _, manifest = alter(reads(range(0, 20, 2)), {"uniqueBytes": 9.5 * BLOCK})
    assert not manifest.off
    assert abs(manifest.achieved.unique_bytes - 9.5 * BLOCK) <= BLOCK

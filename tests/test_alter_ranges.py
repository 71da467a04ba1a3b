# SPDX-License-Identifier: Apache-2.0
"""What a refused alteration names as reachable is reached, by asking for it."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from characterize.errors import FlextraceError
from replayer.alter import Relative, alter
from replayer.flexible import by_depth
from replayer.flexible.draft import UnreachableError
from tests.flexible_traces import database_like, sort_like

pytestmark = pytest.mark.parallel


def test_the_range_that_it_names_is_reached():
    parent = database_like(300)
    with pytest.raises(FlextraceError) as raised:
        alter(parent, {"seqFrac": 1.0})
    _, manifest = alter(parent, {"seqFrac": raised.value.high})
    assert manifest.achieved.seq_frac == pytest.approx(raised.value.high, abs=0.01)
    with pytest.raises(FlextraceError) as raised:
        alter(parent, {"uniqueBytes": Relative(20)})
    _, manifest = alter(parent, {"uniqueBytes": raised.value.high})
    assert manifest.achieved.unique_bytes == pytest.approx(raised.value.high, rel=0.01)


def test_what_cannot_be_held_is_refused_with_the_range_in_which_it_is():
    # Of 1025 requests the 12 first ones of parts of the input do not follow the part before them any more.
    parent = sort_like(4, 4 << 20)
    with pytest.raises(UnreachableError, match=r"off would be seqFrac by -0\.0117.*--nearest") as raised:
        alter(parent, {"processNum": 1})
    assert raised.value.exit_code == 2
    _, manifest = alter(parent, {"processNum": raised.value.low})
    assert not manifest.off
    _, manifest = alter(parent, {"processNum": 1}, nearest=True)
    assert set(manifest.off) == {"seqFrac"}


def test_the_range_is_searched_for_without_holding_the_curve(monkeypatch):
    parent, change = sort_like(4, 4 << 20), {"sizeMean": Relative(2)}
    corrected = Mock(wraps=by_depth.corrected)
    monkeypatch.setattr(by_depth, "corrected", corrected)
    alter(parent, change, nearest=True)
    once = corrected.call_count
    assert once
    with pytest.raises(UnreachableError) as raised:
        alter(parent, change)
    assert corrected.call_count == 2 * once
    _, manifest = alter(parent, {"sizeMean": raised.value.high})
    assert not manifest.off

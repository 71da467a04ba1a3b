# SPDX-License-Identifier: Apache-2.0
"""What a refused alteration names as reachable is reached, by asking for it."""

from __future__ import annotations

import re
from unittest.mock import Mock

import numpy as np
import pytest

from characterize.errors import FlextraceError
from characterize.units import parse_size
from replayer.alter import Relative, alter
from replayer.flexible import by_depth
from replayer.flexible.draft import Draft, UnreachableError
from replayer.flexible.size_mean import RESULT_BYTES_MAX, change_size_mean
from tests.traces.flexible_traces import Recording, database_like, sort_like

pytestmark = pytest.mark.parallel


def few_reads(*sizes):
    recording = Recording()
    file = recording.file("/data", 1 << 20)
    for number, size in enumerate(sizes):
        recording.read(1, file, number << 16, size)
    return recording.trace()


def named(error, pattern):
    found = re.search(pattern, str(error.value))
    assert found, str(error.value)
    return found[1]


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
    parent, change = sort_like(1, 1 << 20), {"sizeMean": Relative(2)}
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


def test_the_largest_mean_size_that_it_names_is_not_refused():
    # 1.6667 GiB, of which four digits are more.
    draft = Draft.of(few_reads(8192, 12288))
    with pytest.raises(UnreachableError) as raised:
        change_size_mean(draft, 2.0**31)
    largest = parse_size(named(raised, "reachable is up to (.*)"))
    change_size_mean(draft, largest)
    start, end, _ = draft.intervals()
    assert np.mean(end - start) == pytest.approx(largest, rel=0.001)
    assert max(end - start) <= RESULT_BYTES_MAX


@pytest.mark.parametrize("name", ["thinkScale", "timeScale"])
def test_the_largest_factor_that_it_names_is_not_refused(name):
    parent = sort_like(1, 1 << 20)
    with pytest.raises(UnreachableError, match=rf"{name} 1e\+300 is not reachable: the clock") as raised:
        alter(parent, {name: Relative(1e300)})
    largest = float(named(raised, r"reachable is .*to (\S+)"))
    assert largest > 1e9
    _, manifest = alter(parent, {name: Relative(largest)})
    assert not manifest.off


def test_the_smallest_time_scale_that_it_names_is_not_refused():
    # 2409 ns are 1 ns then, which is 0.00041511 of it.
    parent = few_reads(*[4096] * 8)
    with pytest.raises(UnreachableError) as raised:
        alter(parent, {"timeScale": Relative(1e-6)})
    _, manifest = alter(parent, {"timeScale": Relative(float(named(raised, r"reachable is about (\S+) to")))})
    assert not manifest.off


def test_the_smallest_think_scale_that_it_names_is_not_refused():
    # Seven waits of 500 ns are of 1 ns each then: what was off by that was told in 300 digits.
    parent = few_reads(*[4096] * 8)
    with pytest.raises(UnreachableError, match="thinkScale 1e-300 is not reachable: the clock") as raised:
        alter(parent, {"thinkScale": Relative(1e-300)})
    _, manifest = alter(parent, {"thinkScale": Relative(float(named(raised, r"reachable is about (\S+) or more")))})
    assert manifest.times["thinkScale"] == pytest.approx((0.002, 0.002))

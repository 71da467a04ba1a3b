# SPDX-License-Identifier: Apache-2.0
"""What reads many sorted parts at once, like an external merge sort, keeps its miss-ratio curve on less data."""

from __future__ import annotations

import numpy as np
import pytest

from replayer.alter import Relative, alter
from replayer.flexible import seq_frac
from replayer.flexible.by_depth import place_by_depths
from replayer.flexible.draft import Draft, UnreachableError
from tests.traces.flexible_traces import replay_size_violations, sort_like

pytestmark = pytest.mark.parallel


@pytest.mark.parametrize(
    "change",
    [{"uniqueBytes": Relative(0.25)}, {"uniqueBytes": Relative(0.5)}, {"sizeMean": Relative(2)}],
    ids=str,
)
def test_merged_parts_are_found_as_deep_as_they_were(change):
    # Where each run needed a file on which all of it is as deep, it was 0.1, 0.03 and 0.03 apart.
    altered, manifest = alter(sort_like(), change)
    assert manifest.curve.held
    assert not manifest.off
    assert replay_size_violations(altered) == 0


def test_what_was_sequential_goes_on_where_any_request_of_its_thread_ended():
    parent = sort_like(2, 6 << 20)
    draft, was = Draft.of(parent), Draft.of(parent)
    place_by_depths(draft, 0.5 * was.unique_bytes(), np.random.default_rng(0))
    cut = was.sequential() & ~draft.sequential()
    assert cut.mean() <= 0.009
    assert not (draft.sequential() & ~was.sequential()).any()
    # More go on in another file than the request before in their run than begin anew.
    before, _ = was.streams()
    file, followed = draft.io["file"][draft.requests], was.sequential()
    assert (file[followed] != file[before[followed]]).sum() > 2 * cut.sum()


def test_no_curve_is_searched_for_where_too_few_can_be_sequential(monkeypatch):
    def never(*_, **__):
        raise AssertionError

    monkeypatch.setattr(seq_frac, "place_by_depths", never)
    with pytest.raises(UnreachableError, match="seqFrac 1 is not reachable"):
        alter(sort_like(1, 1 << 20), {"seqFrac": 1.0})

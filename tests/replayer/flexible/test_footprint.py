# SPDX-License-Identifier: Apache-2.0
"""Where requests go on a larger footprint, and when they become smaller, by blocks that are counted one by one."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from replayer.alter import Relative, alter
from replayer.flexible import unique_bytes
from replayer.flexible.begins import begin_apart
from replayer.flexible.draft import Draft, UnreachableError
from replayer.flexible.seq_frac import change_seq_frac
from replayer.flexible.size_mean import change_size_mean
from replayer.flexible.spread import spread_by_moving
from tests.traces.flexible_traces import Recording, database_like, replay_size_violations

pytestmark = pytest.mark.parallel

BLOCK = 4096


def test_data_that_moves_on_never_comes_back():
    recording = Recording()
    file = recording.file("/data", 128 * BLOCK)
    pages = np.random.default_rng(0).zipf(1.5, 3000) % 64
    for page in pages.tolist():
        recording.read(1, file, 2 * page * BLOCK, BLOCK)
    draft = Draft.of(recording.trace())
    target = 3 * draft.unique_bytes()
    assert spread_by_moving(draft, target, np.random.default_rng(0)) == pytest.approx(target, rel=0.01)
    places = draft.io["offset"] // BLOCK
    stays = []
    for page in np.unique(pages):
        mine = places[pages == page]
        moves = np.flatnonzero(np.diff(mine))
        assert len(np.unique(mine)) == len(moves) + 1
        stays += np.diff(moves).tolist()
    assert max(stays) - min(stays) <= 1
    # What was left behind nobody else uses, and all of it stands together.
    assert len(np.unique(places)) == len(np.unique([pages, places], axis=1).T) == places.max() + 1


@pytest.mark.parametrize("factor", [0.5, 0.8])
def test_a_database_of_other_pages_misses_as_often(factor):
    # Where all returns of a page went around a circle of copies, it was 0.083 apart for half of the size.
    altered, manifest = alter(database_like(), {"sizeMean": Relative(factor)})
    assert manifest.curve.held
    assert not manifest.off
    assert replay_size_violations(altered) == 0


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


def test_runs_begin_where_the_fewest_of_their_requests_share_a_block():
    recording, random = Recording(), np.random.default_rng(0)
    file = recording.file("/data", 400 * BLOCK)
    runs = [random.integers(1, 20, random.integers(1, 5)) * 512 for _ in range(300)]
    for sizes in runs:
        begin = int(random.integers(0, 3000)) * 512
        for size, offset in zip(sizes.tolist(), (begin + np.cumsum(sizes) - sizes).tolist(), strict=True):
            recording.read(1, file, offset, size)
    draft = Draft.of(recording.trace())
    before = draft.sequential()
    begin_apart(draft)
    assert (draft.sequential() == before).all()
    start, _, _ = draft.intervals()

    def worth(begin, sizes):
        """References, and the hits among them."""
        edges = begin + np.append(0, np.cumsum(sizes))
        references = sum((high - 1) // BLOCK - low // BLOCK + 1 for low, high in pairwise(edges.tolist()))
        return references - 1.5 * (edges[1:-1] % BLOCK > 0).sum()

    first = np.cumsum([0, *map(len, runs)])[:-1]
    for at, sizes in zip(start[first] % BLOCK, runs, strict=True):
        assert worth(at, sizes) == max(worth(other, sizes) for other in range(0, BLOCK, 512))


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


@pytest.mark.parametrize("factor", [1e-4, 1e6])
def test_what_no_requests_can_touch_is_refused_at_once(factor, monkeypatch):
    def never(*_, **__):
        raise AssertionError

    for name in ("fill_blocks", "place_by_depths"):
        monkeypatch.setattr(unique_bytes, name, never)
    with pytest.raises(UnreachableError, match="reachable is about"):
        alter(database_like(30), {"uniqueBytes": Relative(factor)})

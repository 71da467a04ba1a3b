# SPDX-License-Identifier: Apache-2.0
"""What storage reads for runs, against the rules of mm/readahead.c gone through run by run."""

from __future__ import annotations

import random

import numpy as np
import pytest

from characterize.workload import Workload
from selfscale.models.measured import columns
from selfscale.models.read_ahead import storage_reads

pytestmark = pytest.mark.parallel

PAGE, MIB = 4096, 1 << 20
MOST = 640
"""Pages of the largest window."""
RUNS = 20_000


def first_window(need: int) -> int:
    window = 1 << (need - 1).bit_length()
    if window <= MOST // 32:
        return 4 * window
    return 2 * window if window <= MOST // 4 else MOST


def next_window(window: int) -> int:
    return 4 * window if window < MOST // 16 else min(MOST, 2 * window)


def pages_read_by_a_run(pages: int, read_frac: float, seq_frac: float, draw: random.Random) -> tuple[int, int]:
    """Pages that storage reads, and requests that read, of one run over what is not cached (Linux 6.18)."""
    cached_to, mark, window, behind = 0, None, 0, None
    total = reads = position = 0
    while True:
        if draw.random() < read_frac:
            reads += 1
            end = position + pages
            if mark is not None and position <= mark < end:
                window = next_window(window)
                mark, cached_to, total = cached_to, cached_to + window, total + window
            if end > cached_to:
                # Of earlier windows the head may be there.
                at = max(position, cached_to)
                if behind is not None and at - behind <= 1:
                    window = max(first_window(end - at), end - at)
                    mark = end
                elif at > pages:
                    window = min(MOST, end)
                    mark = at + window - 1
                else:
                    window, mark = end - at, None
                total += window
                cached_to = at + window
            behind = end - 1
        else:
            cached_to = max(cached_to, position + pages)
        position += pages
        if draw.random() >= seq_frac:
            return total, reads


@pytest.mark.parametrize("read_frac", [0.2, 0.5, 0.75, 1.0])
@pytest.mark.parametrize("seq_frac", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("pages", [1, 7, 64])
def test_bytes_of_runs_are_those_of_the_kernels_rules(pages, seq_frac, read_frac):
    draw = random.Random(f"{pages} {seq_frac} {read_frac}")
    runs = [pages_read_by_a_run(pages, read_frac, seq_frac, draw) for _ in range(RUNS)]
    expected = PAGE * sum(total for total, _ in runs) / sum(reads for _, reads in runs)
    table = columns([Workload(100.0 * MIB, seq_frac, read_frac, float(PAGE * pages), 1.0)])
    found = storage_reads(table, np.zeros(1), MOST * PAGE, (1.0, 1.0))
    # A window that is longer or shorter by chance is its mean length in the formula; with few reads that is coarse.
    assert found.bytes[0] == pytest.approx(expected, rel=0.1 if read_frac > 0.5 else 0.3)


def test_a_scan_reads_every_byte_once_and_waits_for_one_window():
    table = columns([Workload(1024.0 * MIB, 1.0, 1.0, 128.0 * 1024, 1.0)])
    found = storage_reads(table, np.zeros(1), MOST * PAGE, (1.0, 1.0))
    assert found.bytes[0] == pytest.approx(128 * 1024, rel=0.02)
    assert found.behind[0] == pytest.approx(128 * 1024 / (MOST * PAGE), rel=0.05)
    assert found.first[0] < 0.01


def test_a_random_read_reads_itself_and_with_a_full_cache_before_it_more():
    table = columns([Workload(1024.0 * MIB, 0.0, 1.0, 4.0 * PAGE, 1.0)] * 2)
    empty, half = storage_reads(table, np.array([0.0, 0.5]), MOST * PAGE, (1.0, 1.0)).bytes
    assert empty == pytest.approx(4 * PAGE, rel=0.01)
    assert 1.3 < half / empty < 2.5


def test_nothing_is_read_in_vain_where_that_is_taken_away():
    table = columns([Workload(1024.0 * MIB, seq, 0.5, 7.0 * PAGE, 1.0) for seq in (0.0, 0.5, 0.9, 1.0)])
    assert storage_reads(table, np.full(4, 0.5), MOST * PAGE, (0.0, 0.0)).bytes == pytest.approx(7 * PAGE)


@pytest.mark.parametrize("read_frac", [0.0, 1.0])
@pytest.mark.parametrize("size_bytes", [512.0, 1e9])
def test_ends_of_the_range_are_finite(read_frac, size_bytes):
    workloads = [Workload(4e9, seq, read_frac, size_bytes, 1.0) for seq in (0.0, 1.0)]
    for window in (4096.0, 128 * 1024.0, 1e8):
        for values in storage_reads(columns(workloads), np.array([0.0, 1.0]), window, (1.0, 1.0)):
            assert np.isfinite(values).all()
            assert (values >= 0).all()

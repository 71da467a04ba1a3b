# SPDX-License-Identifier: Apache-2.0
"""The other four definitions of sequential: by hand, naively, and against published shares of a real trace."""

import math
from collections import OrderedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from characterize.formats.foreign import read_foreign
from characterize.requests import columns_of, requests_of
from characterize.sequentiality import SequentialitySummary
from characterize.workload import workload_of
from tests.traces.made_trace import made_trace, read, write
from tests.traces.real_traces import real_trace

pytestmark = pytest.mark.parallel

KIB = 1024


def shares(*rows):
    for start, row in enumerate(rows):
        row["start_ns"] = start
    return shares_of(made_trace(list(rows)))


def shares_of(trace, layer="vfs"):
    """All definitions but seqFrac, which test_characterize_workload has."""
    summary = SequentialitySummary(layer)
    summary.add(columns_of(requests_of(trace, layer)))
    return {name: share for name, share in summary.result().shares.items() if name != "seqFrac"}


def test_one_stream_and_per_direction():
    """A copy: reads and writes of 10 bytes in turn, each sequential within its direction, 4 of 6 requests."""
    rows = [maker(base + 10 * i, 10) for i in range(3) for maker, base in ((read, 0), (write, 1000))]
    result = shares(*rows)
    assert result["strictOneStream"] == 0
    assert result["strictPerDirection"] == pytest.approx(4 / 6)
    assert result["queue32"] == pytest.approx(4 / 6)


def test_one_stream_crosses_threads_but_not_files():
    assert shares(read(0, 10), read(10, 10, thread=2))["strictOneStream"] == 0.5
    assert shares(read(0, 10), read(10, 10, file=2))["strictOneStream"] == 0


def test_queue_holds_32_streams():
    """A stream that 31 others follow is still in the queue, one that 32 others follow is not."""
    far = 1 << 20
    others = [read(far * (2 + i), 10) for i in range(32)]
    assert shares(read(0, 10), *others[:31], read(10, 10))["queue32"] == pytest.approx(1 / 33)
    assert shares(read(0, 10), *others, read(10, 10))["queue32"] == 0


def test_queue_is_renewed_by_what_advances_a_stream():
    far = 1 << 20
    others = [read(far * (2 + i), 10) for i in range(32)]
    result = shares(read(0, 10), *others[:31], read(10, 10), others[31], read(20, 10))
    assert result["queue32"] == pytest.approx(2 / 35)


def test_near_is_within_128_kib_on_either_side_of_an_end():
    first, far = 1 << 30, 128 * KIB
    for offset, expected in ((first + far, 0.5), (first + far + 1, 0), (first - far, 0.5), (first - far - 1, 0)):
        assert shares(read(first - 10, 10), read(offset, 1))["near32"] == expected, offset - first


def test_near_looks_back_32_requests():
    others = [read((1 << 30) * (1 + i), 1) for i in range(32)]
    assert shares(read(0, 10), *others[:31], read(10, 1))["near32"] == pytest.approx(1 / 33)
    assert shares(read(0, 10), *others, read(10, 1))["near32"] == 0


def test_darshan_allows_gaps_forward_within_a_thread_and_file():
    assert shares(read(0, 10), read(1 << 40, 10))["darshanSeq"] == 0.5
    assert shares(read(0, 10), read(10, 10))["darshanSeq"] == 0.5
    assert shares(read(0, 10), read(9, 10))["darshanSeq"] == 0
    assert shares(read(0, 10), read(10, 10, thread=2))["darshanSeq"] == 0
    assert shares(read(0, 10), read(10, 10, file=2))["darshanSeq"] == 0


def test_no_requests():
    assert all(math.isnan(share) for share in shares().values())


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(1, 4), st.integers(1, 2)), min_size=1, max_size=300))
def test_queue_against_an_ordered_dictionary(rows):
    queue, hits = OrderedDict(), 0
    for offset, size, file in rows:
        if (file, offset) in queue:
            hits += 1
            del queue[file, offset]
        queue.pop((file, offset + size), None)
        queue[file, offset + size] = True
        if len(queue) > 32:
            queue.popitem(last=False)
    result = shares(*(read(offset, size, file=file) for offset, size, file in rows))
    assert result["queue32"] == pytest.approx(hits / len(rows))


def test_published_shares_of_a_real_trace():
    """research/characterise_predict.md, A3, to its three digits; all five definitions reproduce."""
    trace = read_foreign(real_trace("cloudPhysicsIO.csv"))
    result = shares_of(trace, "block")
    assert {name: round(share, 3) for name, share in result.items()} == {
        "strictOneStream": 0.260,
        "strictPerDirection": 0.502,
        "queue32": 0.582,
        "near32": 0.751,
        "darshanSeq": 0.632,
    }
    assert round(workload_of(trace, "block").seq_frac, 3) == 0.260

# SPDX-License-Identifier: Apache-2.0
"""The five parameters: hand-computed, and against naive implementations."""

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from characterize.errors import FlextraceError
from characterize.layout import BlockFlag, HeaderFlag
from characterize.requests import requests_of
from characterize.workload import FIELD_OF, PARAMETERS, Workload, sequential, unique_bytes, workload_of
from tests.traces.made_trace import made_trace, read, write

pytestmark = pytest.mark.parallel

REQUESTS = st.lists(
    st.builds(
        read,
        st.integers(0, 60),
        st.integers(-2, 30),
        st.integers(0, 50),
        st.integers(0, 20),
        op=st.integers(1, 2),
        file=st.integers(1, 3),
        thread=st.integers(1, 3),
    ),
    max_size=40,
)


def test_hand_made():
    """Two threads on two files; every number computed by hand."""
    trace = made_trace(
        [
            read(0, 100, 0, 10),  # first of (1, 1)
            read(100, 50, 10, 10),  # sequential; starts in the nanosecond in which the first one ends
            write(100, 50, 12, 30, thread=2),  # first of (2, 1)
            read(150, -5, 21, 1),  # an error is no request
            read(150, 0, 22, 1),  # nor is the end of the file
            read(150, 30, 25, 5),  # sequential
            write(1000, 20, 26, 4, file=2),  # first of (1, 2)
            write(160, 40, 50, 5),  # not sequential: 180 would be
        ]
    )
    five = workload_of(trace)
    assert five.unique_bytes == 200 + 20  # [0, 200) without a hole in file 1, 20 bytes in file 2
    assert five.seq_frac == 2 / 6
    assert five.read_frac == 3 / 6
    assert five.size_mean == (100 + 50 + 50 + 30 + 20 + 40) / 6
    assert five.process_num == 3  # at 26: [12, 42), [25, 30), [26, 30)


def test_a_request_without_duration_is_in_flight():
    assert workload_of(made_trace([read(0, 1, 5, 0), read(0, 1, 5, 0, thread=2)])).process_num == 2
    assert workload_of(made_trace([read(0, 1, 5, 0), read(0, 1, 6, 0, thread=2)])).process_num == 1


def test_holes_are_not_counted():
    assert workload_of(made_trace([read(0, 10), read(20, 10), read(5, 10), read(0, 2)])).unique_bytes == 25


def test_offsets_beyond_32_bits():
    far = 2**62
    five = workload_of(made_trace([write(far, 1000, 0), write(far + 1000, 24, 1), write(far, 5, 2, file=2)]))
    assert five.unique_bytes == 1029
    assert five.seq_frac == pytest.approx(1 / 3)


def test_requests_are_taken_in_the_order_of_their_starts():
    """Records are written at the end of an operation: their order in the file is not the order of the starts."""
    assert (
        workload_of(made_trace([read(100, 10, start=7, duration=1), read(0, 100, start=2, duration=20)])).seq_frac
        == 0.5
    )


def test_no_requests():
    five = workload_of(made_trace([read(0, 0), write(0, -28)]))
    assert five.unique_bytes == 0
    assert five.process_num == 0
    assert all(math.isnan(value) for value in (five.seq_frac, five.read_frac, five.size_mean))
    assert five.as_document() == {
        "uniqueBytes": 0,
        "seqFrac": None,
        "readFrac": None,
        "sizeMean": None,
        "processNum": 0,
    }


@pytest.mark.parametrize("flag", [HeaderFlag.UNTIMED, HeaderFlag.PLANNED])
def test_a_trace_that_has_not_run_has_the_declared_processes(flag):
    rows = [read(0, 10, 0, 100), read(10, 10, 0, 100, thread=2)]
    assert workload_of(made_trace(rows, flags=flag, metadata={"declared": {"processNum": 7}})).process_num == 7
    assert math.isnan(workload_of(made_trace(rows, flags=flag)).process_num)


def test_block_layer():
    trace = made_trace(
        blocks=[
            {"op": 1, "sector": 8, "bytes": 4096, "start_ns": 0, "duration_ns": 10, "thread": 1},
            {
                "op": 1,
                "sector": 16,
                "bytes": 4096,
                "start_ns": 5,
                "duration_ns": 10,
                "thread": 2,
            },  # one stream a device
            {"op": 2, "sector": 24, "bytes": 512, "start_ns": 20, "duration_ns": 1, "device": 7 << 20},
            {"op": 2, "sector": 24, "bytes": 512, "start_ns": 21, "duration_ns": 1, "status": 10},  # failed
            {"op": 3, "sector": 0, "bytes": 0, "start_ns": 22, "duration_ns": 1, "flags": int(BlockFlag.PREFLUSH)},
            {"op": 4, "sector": 24, "bytes": 4096, "start_ns": 23, "duration_ns": 1},  # a discard is no request
        ]
    )
    five = workload_of(trace, "block")
    assert five == Workload(8192 + 512, 1 / 3, 2 / 3, (4096 + 4096 + 512) / 3, 2)
    assert workload_of(trace).unique_bytes == 0


def test_unknown_layer():
    with pytest.raises(FlextraceError, match="layer 'nfs' is unknown"):
        workload_of(made_trace(), "nfs")


@given(REQUESTS)
def test_unique_bytes_is_the_size_of_the_set_of_bytes(rows):
    touched = {
        (row["file"], byte) for row in rows for byte in range(row["offset"], row["offset"] + max(row["result"], 0))
    }
    assert unique_bytes(requests_of(made_trace(rows))) == len(touched)


@given(REQUESTS)
def test_process_num_is_the_largest_number_in_flight(rows):
    in_flight = Counter(
        moment
        for row in rows
        if row["result"] > 0
        for moment in range(row["start_ns"], row["start_ns"] + max(row["duration_ns"], 1))
    )
    assert workload_of(made_trace(rows)).process_num == max(in_flight.values(), default=0)


@given(REQUESTS)
def test_sequential_follows_every_thread_on_every_file(rows):
    expected, ends = [], {}
    for row in sorted((row for row in rows if row["result"] > 0), key=lambda row: row["start_ns"]):
        stream = row["thread"], row["file"]
        expected.append(ends.get(stream) == row["offset"])
        ends[stream] = row["offset"] + row["result"]
    assert sequential(requests_of(made_trace(rows))).tolist() == expected


def test_documents():
    five = Workload(2**20, 0.5, math.nan, 4096.5, 2)
    document = five.as_document()
    assert document == {"uniqueBytes": 2**20, "seqFrac": 0.5, "readFrac": None, "sizeMean": 4096.5, "processNum": 2}
    assert tuple(document) == PARAMETERS == tuple(FIELD_OF)
    assert isinstance(document["uniqueBytes"], int)
    back = Workload.from_document({**document, "schema": "x"})
    assert math.isnan(back.read_frac)
    assert back.replace(read_frac=0.0) == five.replace(read_frac=0.0)
    assert five.replace(size_mean=1.0).size_mean == 1


@pytest.mark.parametrize(
    ("change", "message"), [({"sizeMean": "4k"}, "sizeMean = '4k'"), ({"seqFrac": True}, "seqFrac = True")]
)
def test_documents_with_something_else(change, message):
    document = Workload(1, 1, 1, 1, 1).as_document()
    with pytest.raises(FlextraceError, match=message):
        Workload.from_document({**document, **change})
    with pytest.raises(FlextraceError, match="no processNum"):
        Workload.from_document(dict.fromkeys(PARAMETERS[:-1], 1))

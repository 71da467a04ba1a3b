# SPDX-License-Identifier: Apache-2.0
"""A trace in chunks: the records in the order of a stable sort whatever the pieces, and the same document from all."""

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import characterize as package
from characterize.characterization import characterize
from characterize.errors import FlextraceError
from characterize.layer_summary import Sample
from characterize.layout import TRACE_HEADER_BYTES, TRACE_RECORD_BYTES, HeaderFlag, RecordKind
from characterize.stream import TIMED, Chunk, Linked, open_stream, stream_of, stream_of_pieces
from characterize.trace import Trace
from characterize.trace_files.archive import pack
from characterize.workload import workload_of
from tests.traces.busy_records import written_as_is
from tests.traces.flexible_traces import KINDS, recordings
from tests.traces.made_trace import made_trace, read, write
from tests.traces.partial_traces import TRACES
from tests.truths.whole_document import document

pytestmark = pytest.mark.parallel

STEPS = (1, 7, 1000)
START = st.integers(0, 12)


@st.composite
def disorder(draw):
    """Records of all timed kinds, started at few moments, in any order.

    Some pieces follow their block request; some calls follow a record of who woke their thread.
    """
    rows = []
    for number in range(draw(st.integers(0, 40))):
        kind = draw(st.sampled_from([RecordKind.IO, RecordKind.IO, RecordKind.FILEOP, RecordKind.BLOCK]))
        start, duration = draw(START), draw(st.integers(0, 5))
        times = {"start_ns": start, "duration_ns": duration}
        if kind != RecordKind.BLOCK and draw(st.booleans()):
            waits = {"slept_ns": draw(st.integers(0, 5)), "cause": draw(st.integers(0, 40)), "id": number}
            rows.append((RecordKind.WAKE, {**times, **waits}))
        if kind == RecordKind.IO:
            maker = draw(st.sampled_from([read, write]))
            size = draw(st.integers(-2, 9000))
            row = maker(draw(st.integers(0, 9000)), size, file=draw(st.integers(1, 2)), thread=draw(st.integers(1, 3)))
            rows.append((kind, {**row, **times, "id": number}))
        elif kind == RecordKind.FILEOP:
            rows.append((kind, {"op": draw(st.sampled_from([3, 6])), "argument": 100, **times, "id": number}))
        else:
            rows.append((kind, {"op": draw(st.integers(1, 3)), "bytes": 8192, "sector": 8 * number, **times}))
            for _ in range(draw(st.integers(0, 3))):
                owner = {"device": 8 << 20, "start_ns": start + draw(st.sampled_from([0, 0, 0, 99]))}
                piece = {"class": draw(st.integers(1, 4)), "file": 1, "bytes": 1024, "cause": draw(st.integers(0, 1))}
                rows.append((RecordKind.BLOCK_DATA, {**piece, **owner}))
    return rows


def collected(stream):
    """All records of a stream, by kind, in its order."""
    found = {kind: [] for kind in TIMED}
    bounds = []
    for part in stream.chunks():
        if isinstance(part, Chunk):
            starts = np.concatenate([array["start_ns"] for array in part.arrays.values()])
            if len(starts):
                bounds.append((int(starts.min()), int(starts.max())))
            for kind, array in part.arrays.items():
                found[kind].append(array)
    assert all(before[1] < after[0] for before, after in pairwise(bounds))
    return {kind: np.concatenate(arrays) for kind, arrays in found.items() if arrays}


@settings(max_examples=60)
@given(disorder())
def test_chunks_are_a_stable_sort_whatever_the_pieces(tmp_path_factory, rows):
    path = written_as_is(tmp_path_factory.mktemp("stream"), rows)
    trace = package.open(path)
    whole = characterize(trace)
    for step in STEPS:
        stream = open_stream(path, step)
        for kind, array in collected(stream).items():
            expected = trace.arrays[kind]
            expected = expected[np.argsort(expected["start_ns"], kind="stable")]
            assert array.tobytes() == expected.tobytes()
        for kind, array in collected(stream_of(trace, step)).items():
            assert (
                array.tobytes()
                == trace.arrays[kind][np.argsort(trace.arrays[kind]["start_ns"], kind="stable")].tobytes()
            )
        assert document(characterize(stream)) == document(whole)


ALL_EXACT = [(name, None) for name in (*TRACES, *KINDS)]
SAMPLED = [(name, sample) for name in ("full", "database") for sample in (Sample(0.5), Sample(size_bytes=532_000))]


@pytest.mark.parametrize(("name", "sample"), ALL_EXACT + SAMPLED)
def test_every_step_gives_the_same_document(name, sample, tmp_path):
    trace = TRACES[name]() if name in TRACES else KINDS[name]()
    whole = document(characterize(trace, sample=sample))
    path = package.write(trace, tmp_path / "a.iotrace")
    steps = STEPS if len(trace.arrays[RecordKind.IO]) < 100 else (1777,)
    for step in steps:
        assert document(characterize(trace, sample=sample, chunk_records=step)) == whole
        assert document(characterize(open_stream(path, step), sample=sample))["layers"] == whole["layers"]


@settings(max_examples=20)
@given(recordings(), st.sampled_from(STEPS))
def test_recordings_in_steps(recording, step):
    assert document(characterize(recording, chunk_records=step)) == document(characterize(recording))


@settings(max_examples=30)
@given(recordings(), st.sampled_from(STEPS))
def test_the_five_are_those_of_the_whole_table(recording, step):
    """`workload_of` makes them by sorting all requests."""
    layers = characterize(recording, chunk_records=step).layers
    for layer in ("vfs", "block"):
        assert layers[layer].parameters.as_document() == workload_of(recording, layer).as_document()


def test_a_file_that_becomes_shorter_is_refused(tmp_path):
    path = written_as_is(tmp_path, [(RecordKind.IO, read(4096 * at, 4096, at)) for at in range(10)])
    stream = open_stream(path, 4)
    path.write_bytes(path.read_bytes()[: TRACE_HEADER_BYTES + 6 * TRACE_RECORD_BYTES - 1])
    with pytest.raises(FlextraceError, match="became shorter"):
        characterize(stream)


def test_an_archive_is_streamed(tmp_path):
    trace = KINDS["database"]()
    path = package.write(trace, tmp_path / "a.iotrace")
    pack(path, tmp_path / "a.parquet", batch_records=500)
    archived = characterize(open_stream(tmp_path / "a.parquet"))
    assert document(archived) == document(characterize(open_stream(path, 100)))
    assert archived.provenance["input"]["path"].endswith("a.parquet")


def test_one_long_request_does_not_keep_the_rest_waiting(tmp_path):
    """It starts first and ends last, so that its record stands last; no chunk is larger than two pieces for that."""
    rows = [(RecordKind.IO, read(4096 * at, 4096, 10 + at)) for at in range(100)]
    path = written_as_is(tmp_path, [*rows, (RecordKind.IO, read(0, 1, 0, 1000))])
    parts = [part.arrays[RecordKind.IO] for part in open_stream(path, 5).chunks() if isinstance(part, Chunk)]
    assert np.concatenate(parts)["start_ns"].tolist() == [0, *range(10, 110)]
    assert max(len(part) for part in parts) <= 10
    assert characterize(open_stream(path, 5)).layers["vfs"].concurrency.in_flight_max == 2


def test_a_crash_ends_the_stream_at_the_hole(tmp_path):
    rows = [(RecordKind.IO, read(4096 * at, 4096, at)) for at in range(10)]
    path = written_as_is(tmp_path, rows, flags=int(HeaderFlag.INCOMPLETE))
    content = bytearray(path.read_bytes())
    content[TRACE_HEADER_BYTES + 6 * TRACE_RECORD_BYTES :] = bytes(4 * TRACE_RECORD_BYTES + 30)
    path.write_bytes(bytes(content))
    for step in STEPS:
        stream = open_stream(path, step)
        assert len(collected(stream)[RecordKind.IO]) == 6
        assert stream.facts.warnings == package.open(path).warnings


def test_pieces_of_a_request_may_be_in_another_piece_of_the_file(tmp_path):
    rows = [(RecordKind.BLOCK, {"op": 1, "bytes": 4096, "start_ns": 5, "cause": 0})]
    rows += [(RecordKind.BLOCK_DATA, {"class": 2, "bytes": 1024, "start_ns": 5, "device": 8 << 20, "cause": 7})] * 4
    path = written_as_is(tmp_path, rows)
    parts = [part for part in open_stream(path, 1).chunks() if isinstance(part, Linked)]
    assert sum(len(part.data) for part in parts) == 4
    assert all((part.owner >= 0).all() for part in parts)
    assert characterize(open_stream(path, 1)).links.issued.linked_bytes == 4096


def test_orphans_are_warned_of(tmp_path):
    rows = [(RecordKind.BLOCK_DATA, {"class": 2, "bytes": 1024, "start_ns": 5, "device": 8 << 20})]
    path = written_as_is(tmp_path, rows)
    assert any("BLOCK_DATA records do not follow" in warning for warning in characterize(open_stream(path)).warnings)
    assert characterize(open_stream(path)).warnings == characterize(package.open(path)).warnings


def test_records_that_come_in_pieces():
    """Such as those of another tool: the last piece but one is behind in time."""
    trace = made_trace([read(0, 10, start, file=2) for start in (5, 9, 30, 40, 7, 50)], files=[{"file": 2}])
    files, rows = (
        trace.arrays[kind].view(np.uint8).reshape(-1, TRACE_RECORD_BYTES) for kind in (RecordKind.FILE, RecordKind.IO)
    )
    stream = stream_of_pieces(
        lambda: iter([files, rows[:2], rows[2:4], rows[4:5], rows[5:]]), lambda arrays: Trace(trace.header, arrays)
    )
    assert collected(stream)[RecordKind.IO]["start_ns"].tolist() == [5, 7, 9, 30, 40, 50]
    assert document(characterize(stream)) == document(characterize(trace))


def test_numbers_of_records_are_known(tmp_path):
    trace = KINDS["database"]()
    path = package.write(trace, tmp_path / "a.iotrace")
    stream = open_stream(path, 100)
    assert stream.facts.header.count == package.open(path).header.count
    pd.testing.assert_frame_equal(stream.facts.files, package.open(path).files)

# SPDX-License-Identifier: Apache-2.0
"""A trace in parts: whatever the cuts, what is merged is what one pass over the whole finds."""

from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import characterize as package
from characterize import sequentiality
from characterize.characterization import Characterization, characterize
from characterize.cluster import plan
from characterize.cluster.characterize_set import characterize_set
from characterize.errors import FlextraceError
from characterize.grouping import Grouping
from characterize.groups import Key, RequestsByKey
from characterize.layer_summary import Sample
from characterize.layout import TRACE_HEADER_BYTES, TRACE_RECORD_BYTES, HeaderFlag, RecordKind
from characterize.requests import LAYERS, Layer
from characterize.stream import open_stream
from characterize.trace import Header, Trace
from tests.traces.busy_records import busy_records, written_as_is
from tests.traces.flexible_traces import KINDS
from tests.traces.made_trace import made_trace, read, records
from tests.traces.partial_traces import TRACES
from tests.truths.whole_document import document

pytestmark = pytest.mark.parallel

BLOCK = 4096
KEYS = get_args(Key)


def groupings() -> st.SearchStrategy[Grouping]:
    """By a key and by windows of which some lie in several parts, and some parts in one."""
    layers: dict[Key, tuple[Layer, ...]] = {"process": LAYERS, "file": ("vfs",), "device": LAYERS}
    return st.builds(
        lambda by, window_ns: Grouping(by, window_ns / 1e9, layers[by]),
        st.sampled_from(KEYS),
        st.sampled_from([5, 8, 16, 100]),
    )


@settings(max_examples=60, deadline=None)
@given(busy_records(), st.sets(st.integers(1, 31), max_size=12), st.sampled_from([1, 5, 1000]), st.none() | groupings())
def test_whatever_the_cuts_the_document_is_the_same(tmp_path_factory, rows, cuts, piece_records, grouping):
    """Also that of groups."""
    path = written_as_is(tmp_path_factory.mktemp("parts"), rows)
    with pytest.MonkeyPatch.context() as patch:
        # Fewer groups than files, processes and devices, so that some are together.
        patch.setattr(RequestsByKey.heaviest, "__defaults__", (2,))
        patch.setattr(plan, "_borders", lambda pieces, parts: sorted(cuts) if pieces else [])
        merged = characterize_set([path], grouping=grouping, piece_records=piece_records)
        whole = characterize(open_stream(path), grouping=grouping)
    assert document(merged) == document(whole)


@pytest.mark.parametrize("name", [*TRACES, *KINDS])
def test_one_four_and_sixteen_parts(name, tmp_path):
    trace = TRACES[name]() if name in TRACES else KINDS[name]()
    path = package.write(trace, tmp_path / "a.iotrace")
    whole = document(characterize(open_stream(path)))
    for parts in (1, 4, 16):
        assert document(characterize_set([path], parts=parts, piece_records=5000)) == whole


@pytest.mark.parametrize("by", KEYS)
@pytest.mark.parametrize("name", KINDS)
def test_groups_of_sixteen_parts(name, by, tmp_path):
    path = package.write(KINDS[name](), tmp_path / "a.iotrace")
    stream = open_stream(path)
    window_s = (stream.last_ns - stream.first_ns) / 7e9 if stream.facts.measured else None
    grouping = Grouping(by, window_s)
    whole = document(characterize(stream, grouping=grouping))
    assert len(whole["groups"]) >= (8 if window_s else 1)
    assert document(characterize_set([path], grouping=grouping, parts=16, piece_records=5000)) == whole


def test_windows_of_a_trace_that_has_not_run_are_refused(tmp_path):
    path = package.write(KINDS["willy"](), tmp_path / "a.iotrace")
    with pytest.raises(FlextraceError, match="has no times to be divided into windows"):
        characterize_set([path], grouping=Grouping(window_s=1.0), parts=4)


def many_streams(count: int) -> Trace:
    """More sequential streams than the queue holds, taken up again in an order of chance."""
    random = np.random.default_rng(3)
    reached = np.zeros(80, np.int64)
    rows = []
    for at, stream in enumerate(random.integers(0, 80, count).tolist()):
        size = int(random.integers(1, 5)) * 512
        rows.append(read(int(reached[stream]) + stream * 10**9, size, at, file=1, thread=stream % 7 + 1))
        reached[stream] += size
    return made_trace(rows)


def test_many_streams_in_parts(tmp_path):
    path = package.write(many_streams(3000), tmp_path / "a.iotrace")
    whole = document(characterize(open_stream(path)))
    assert 0.1 < whole["layers"]["vfs"]["sequentiality"]["queue32"] < 0.9
    for parts in (4, 16):
        assert document(characterize_set([path], parts=parts)) == whole


def test_a_queue_that_does_not_fill_misses_at_most_31_requests_per_border(tmp_path, monkeypatch):
    """Each part begins with 40 requests of one stream, of which 8 are kept, and then goes on with 30 older streams."""
    rows: list[dict] = []
    for at in range(4):
        for step in range(40):
            rows.append(read(at * 10**6 + step * 512, 512, len(rows), file=9))
        rows += [read(512 * at, 512, len(rows) + stream, file=10 + stream) for stream in range(30)]
    path = package.write(made_trace(rows), tmp_path / "a.iotrace")
    exact = characterize(open_stream(path)).layers["vfs"].sequentiality["queue32"] * len(rows)
    monkeypatch.setattr(plan, "_borders", lambda pieces, parts: [70, 140, 210])
    whole = characterize_set([path]).layers["vfs"].sequentiality["queue32"] * len(rows)
    assert whole == pytest.approx(exact)
    monkeypatch.setattr(sequentiality, "FIRST_REQUESTS", 8)
    fewer = characterize_set([path]).layers["vfs"].sequentiality["queue32"] * len(rows)
    assert exact - 3 * 31 <= fewer < exact


def curve(result: Characterization, sizes: np.ndarray) -> np.ndarray:
    return result.layers["vfs"].locality.miss_ratio(sizes)


@pytest.fixture(scope="module")
def skewed(tmp_path_factory) -> Path:
    """200 000 references to 30 000 blocks, a few of them much more often, and a scan; 64 Ki pieces lie in two files."""
    random = np.random.default_rng(5)
    count = 200_000
    hot = (random.pareto(0.7, count) * 50).astype(np.int64) % 30_000
    block = np.where(np.arange(count) % 4 == 0, np.arange(count) // 4 % 30_000, hot)
    io = np.zeros(count, records(RecordKind.IO, []).dtype)
    io["kind"], io["op"], io["source"], io["thread"], io["process"] = RecordKind.IO, 1, 1, 1, 1
    io["start_ns"], io["duration_ns"], io["file"] = np.arange(count) * 10, 5, 1 + block % 2
    io["offset"], io["result"] = block // 2 * BLOCK, BLOCK
    trace = Trace(Header(), {RecordKind.IO: io})
    return package.write(trace, tmp_path_factory.mktemp("skewed") / "a.iotrace")


def test_a_fixed_rate_gives_the_same_depths_in_parts(skewed):
    sizes = np.arange(1, 101) * 300 * BLOCK
    sample = Sample(rate=0.1)
    whole = characterize(open_stream(skewed), sample=sample)
    for parts in (1, 4, 16):
        merged = characterize_set([skewed], sample=sample, parts=parts)
        # The sample is the same; how few references too many are split over the depths is not.
        assert merged.layers["vfs"].locality.sampled == whole.layers["vfs"].locality.sampled
        assert merged.layers["vfs"].locality.references == pytest.approx(whole.layers["vfs"].locality.references)
        assert np.abs(curve(merged, sizes) - curve(whole, sizes)).mean() < 0.001
        assert merged.layers["vfs"].parameters == whole.layers["vfs"].parameters


def test_groups_are_sampled_as_the_whole_is(skewed):
    sizes = np.arange(1, 101) * 150 * BLOCK
    sample, grouping = Sample(rate=0.1), Grouping("file", 1e-3)
    whole = characterize(open_stream(skewed), sample=sample, grouping=grouping).groups
    assert [group.by for group in whole] == ["file", "file", "window", "window"]
    for parts in (1, 4, 16):
        merged = characterize_set([skewed], sample=sample, grouping=grouping, parts=parts).groups
        for mine, its in zip(merged, whole, strict=True):
            found, expected = mine.characterization, its.characterization
            assert (mine.key, found.parameters, found.counts) == (its.key, expected.parameters, expected.counts)
            assert found.locality.sampled == expected.locality.sampled
            far = np.abs(found.locality.miss_ratio(sizes) - expected.locality.miss_ratio(sizes))
            assert far.mean() < 0.001


def test_a_fixed_size_stays_within_the_error_of_the_sample(skewed):
    sizes = np.arange(1, 101) * 300 * BLOCK
    sample = Sample(size_bytes=600_000)
    exact = curve(characterize(open_stream(skewed)), sizes)
    for parts in (1, 4, 16):
        merged = characterize_set([skewed], sample=sample, parts=parts)
        sampled = merged.layers["vfs"].locality.sampled
        assert sampled["rate"] < 0.5
        assert sampled["blocks"] * 54 < 600_000
        assert np.abs(curve(merged, sizes) - exact).mean() < 0.01


def test_a_crash_ends_a_recording_at_the_hole(tmp_path):
    rows = [(RecordKind.IO, read(BLOCK * at, BLOCK, at)) for at in range(40)]
    path = written_as_is(tmp_path, rows, flags=int(HeaderFlag.INCOMPLETE))
    content = bytearray(path.read_bytes())
    content[TRACE_HEADER_BYTES + 21 * TRACE_RECORD_BYTES : -TRACE_RECORD_BYTES] = bytes(18 * TRACE_RECORD_BYTES)
    path.write_bytes(content)
    for piece_records in (1, 4, 100):
        merged = characterize_set([path], parts=3, piece_records=piece_records)
        assert merged.layers["vfs"].requests == 21
        assert document(merged) == document(characterize(open_stream(path)))

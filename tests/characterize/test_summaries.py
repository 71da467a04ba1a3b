# SPDX-License-Identifier: Apache-2.0
"""Measures that are counted in chunks, against naive implementations; and merging, where it is claimed."""

import math
from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from characterize.block_history import BlockHistorySummary
from characterize.characterization import characterize
from characterize.counting.log_histogram import rank_of
from characterize.counting.numbering import Numbering
from characterize.extended import BlockFlagsSummary, ExtendedSummary
from characterize.file_skew import FileSkewSummary
from characterize.layout import NOT_MEASURED_U32, Fileop, RecordKind
from characterize.links import LinksSummary, moved_by_programs
from characterize.over_time import OverTimeSummary
from characterize.references import BlockNumbers
from characterize.requests import columns_of, requests_of
from characterize.sequentiality import SequentialitySummary
from characterize.sizes import SizeSummary
from characterize.text import render
from characterize.touched import UniqueBytes
from tests.traces.made_trace import made_trace, read, records, write

pytestmark = pytest.mark.parallel

BLOCK = 4096
MAKERS = st.sampled_from([read, write])
ROWS = st.lists(
    st.builds(
        lambda maker, offset, size, start, duration, file, thread: maker(
            offset, size, start, duration, file=file, thread=thread
        ),
        MAKERS,
        st.integers(0, 14_000),
        st.integers(1, 9000),
        st.integers(0, 60),
        st.integers(0, 40),
        st.integers(1, 3),
        st.integers(1, 3),
    ),
    max_size=40,
)


def columns(rows):
    return columns_of(requests_of(made_trace(rows)))


def parts(requests, step):
    for at in range(0, len(requests["bytes"]), step):
        yield {name: column[at : at + step] for name, column in requests.items()}


def by_start(rows):
    return sorted(rows, key=lambda row: row["start_ns"])


@given(ROWS, st.integers(1, 9))
def test_unique_bytes_is_the_size_of_the_set_of_bytes(rows, step):
    blocks, unique = BlockNumbers(), UniqueBytes()
    for part in parts(columns(rows), step):
        for batch in blocks.references(part):
            unique.add(part, batch)
    touched = {(row["file"], byte) for row in rows for byte in range(row["offset"], row["offset"] + row["result"])}
    assert unique.result() == len(touched)


@given(st.lists(st.tuples(st.integers(0, 4095), st.integers(1, 40)), min_size=1, max_size=400), st.integers(0, 1))
def test_unique_bytes_of_blocks_with_many_holes(pieces, whole):
    """The list of ranges is put in order many times, and a block that is touched whole in the end leaves it."""
    rows = [read(offset, size, at) for at, (offset, size) in enumerate(pieces * 30)]
    rows += [read(0, 2 * BLOCK, len(rows))] * whole
    blocks, unique = BlockNumbers(), UniqueBytes()
    requests = columns(rows)
    for batch in blocks.references(requests):
        unique.add(requests, batch)
        assert unique.nbytes < 600_000
    assert unique.result() == len(
        {byte for row in rows for byte in range(row["offset"], row["offset"] + row["result"])}
    )


@given(ROWS, st.integers(1, 9))
def test_runs_against_lists(rows, step):
    summary = SequentialitySummary()
    for part in parts(columns(rows), step):
        summary.add(part)
    streams = defaultdict(list)
    for row in by_start(rows):
        runs = streams[row["thread"], row["file"]]
        if runs and runs[-1][-1]["offset"] + runs[-1][-1]["result"] == row["offset"]:
            runs[-1].append(row)
        else:
            runs.append([row])
    lengths = sorted(len(run) for runs in streams.values() for run in runs)
    found = summary.result().runs
    assert found["count"] == len(lengths)
    if lengths:
        assert found["requests"]["mean"] == pytest.approx(np.mean(lengths))
        assert found["requests"]["p90"] == lengths[rank_of(0.9, len(lengths)) - 1]
        assert found["bytes"]["mean"] * len(lengths) == pytest.approx(sum(row["result"] for row in rows))
        assert found["requests"]["max"] == lengths[-1]
        assert summary.result().runs == found, "it can be asked again"


def naive_blocks(row):
    return [
        (row["file"], block)
        for block in range(row["offset"] // BLOCK, (row["offset"] + row["result"] - 1) // BLOCK + 1)
    ]


@given(ROWS, st.integers(1, 9))
def test_reuse_against_a_dictionary(rows, step):
    blocks, history = BlockNumbers(), BlockHistorySummary(arrivals=True)
    for part in parts(columns(rows), step):
        for batch in blocks.references(part):
            history.add(part, batch)
    last, pairs, times = {}, Counter(), defaultdict(list)
    for row in by_start(rows):
        now = "Read" if row["op"] == 1 else "Write"
        for block in naive_blocks(row):
            if block in last:
                before, start = last[block]
                pairs[f"{now.lower()}After{before}"] += 1
                times[f"{now.lower()}After{before}"].append(row["start_ns"] - start)
            else:
                pairs[f"first{now}"] += 1
            last[block] = now, row["start_ns"]
    found = history.result()
    total = sum(pairs.values())
    for name, share in found.items():
        if name != "time" and total:
            assert share == pytest.approx(pairs[name] / total)
    for name, its in found["time"].items():
        assert its["count"] == len(times[name])
        if times[name]:
            assert (its["max_ns"], its["mean_ns"]) == (max(times[name]), pytest.approx(np.mean(times[name])))
    assert BlockHistorySummary(arrivals=False).result()["time"] == {"readAfterWrite": None, "writeAfterWrite": None}


@given(ROWS, st.integers(1, 9), st.integers(1, 30))
def test_windows_against_sets(rows, step, windows):
    requests = columns(rows)
    first, last = (min(requests["start_ns"], default=0), max(requests["end_ns"], default=0))
    blocks, summary = BlockNumbers(), OverTimeSummary(int(first), int(last), True, windows)
    for part in parts(requests, step):
        summary.add(part)
        for batch in blocks.references(part):
            summary.add_references(part, batch)
    table = summary.result()
    assert len(table) <= windows
    width = round(table["from_s"].iloc[1] * 1e9) if len(table) > 1 else int(last - first) + 1
    for number, row in enumerate(table.to_dict("records")):
        low, high = first + number * width, first + (number + 1) * width
        mine = [it for it in rows if low <= it["start_ns"] < high]
        assert row["reads"] + row["writes"] == len(mine)
        assert row["written_bytes"] == sum(it["result"] for it in mine if it["op"] == 2)
        assert row["working_set_bytes"] == BLOCK * len({block for it in mine for block in naive_blocks(it)})
        flying = sum(
            max(0, min(high, it["start_ns"] + max(it["duration_ns"], 1)) - max(low, it["start_ns"])) for it in rows
        )
        if len(table) > 1:
            assert row["in_flight_mean"] == pytest.approx(flying / width)


def test_skew_by_hand():
    """Files of 600, 300 and 100 bytes: the Gini coefficient is (2 (1 x 100 + 2 x 300 + 3 x 600) - 4 x 1000) / 3000."""
    skew = FileSkewSummary()
    skew.add(columns([read(0, 600), write(0, 100, file=2), read(0, 300, file=3)]))
    shares = skew.result().shares()
    assert shares == {"files": 3, "topShare": 0.6, "top10Share": 1, "gini": pytest.approx(1 / 3)}
    assert skew.result().by_file["file"].tolist() == [1, 3, 2]
    assert skew.result().listed({3: "/x"})["path"].tolist() == ["", "/x", ""]
    assert math.isnan(FileSkewSummary().result().shares()["gini"])


def test_time_between_arrivals_crosses_chunks():
    trace = made_trace([read(0, 1, start) for start in (0, 5, 20, 20, 100)])
    for step in (1, 2, 100):
        found = characterize(trace, chunk_records=step).layers["vfs"].inter_arrival_time
        assert (found["count"], found["mean_ns"], found["max_ns"], found["p50_ns"]) == (4, 25, 80, 5)


def test_time_between_syncs_crosses_chunks():
    syncs = [{"op": Fileop.FSYNC, "start_ns": start, "duration_ns": 3, "thread": start} for start in (0, 6, 20, 104)]
    trace = made_trace([read(0, 1, start) for start in (0, 5, 100)], fileops=syncs)
    for step in (1, 2, 100):
        layer = characterize(trace, chunk_records=step).layers["vfs"]
        found = layer.inter_sync_time
        assert (found["count"], found["mean_ns"], found["max_ns"], found["p50_ns"]) == (3, 104 / 3, 84, 14)
        assert layer.time_histogram["inter_sync"].sum() == 3
    assert "between syncs" in render(characterize(trace))
    assert "between syncs" not in render(characterize(made_trace([read(0, 1)])))


def sized(rows):
    summary = SizeSummary()
    summary.add(columns(rows))
    return summary


def skewed(rows):
    summary = FileSkewSummary()
    summary.add(columns(rows))
    return summary


def extended(rows):
    requests = columns(rows)
    requests["fresh"], requests["appended"] = requests["bytes"] // 2, requests["bytes"] // 3
    requests["missed_bytes"] = np.where(requests["file"] == 1, NOT_MEASURED_U32, requests["bytes"] // 4).astype(
        np.uint32
    )
    files = [{"file": file, "size_bytes": 9, "resident_bytes": file} for file in (1, 2)]
    summary = ExtendedSummary(records(RecordKind.FILE, files), measured=True)
    summary.add(requests, len(rows))
    return summary


def flagged(rows):
    summary = BlockFlagsSummary()
    summary.add(columns(rows) | {"flags": np.array([1 << (row["offset"] % 7) for row in rows], np.uint32)})
    return summary


def linked(rows):
    trace = made_trace(
        blocks=[{"op": row["op"], "bytes": row["result"], "cause": row["offset"] % 2} for row in rows],
        block_data=[
            {"block": at, "bytes": 1, "class": row["file"], "file": row["file"]} for at, row in enumerate(rows)
        ],
    )
    summary = LinksSummary(all_stacked=False)
    summary.add(trace.arrays[RecordKind.BLOCK], trace.arrays[RecordKind.BLOCK_DATA], trace.block_of_data)
    return summary


MERGED = {
    "sizes": (sized, lambda it: it.result().histogram().to_dict("list") | it.result().common().to_dict("list")),
    "skew": (skewed, lambda it: it.result().by_file.to_dict("list")),
    "extended": (extended, lambda it: it.result()),
    "flags": (flagged, lambda it: it.result(0.0)),
    "links": (linked, lambda it: it.result({}, moved_by_programs(records(RecordKind.IO, []))).as_document()),
}


@pytest.mark.parametrize("name", MERGED)
@given(ROWS, ROWS, ROWS)
def test_merging_is_counting_all_in_any_order(name, first, second, third):
    make, result = MERGED[name]
    left, right = make(first), make(second)
    left.merge(right)
    left.merge(make(third))
    right.merge(make(third))
    other = make(first)
    other.merge(right)
    reverse = make(third)
    reverse.merge(make(second))
    reverse.merge(make(first))
    whole = result(make(first + second + third))
    for merged in (left, other, reverse):
        np.testing.assert_equal(result(merged), whole)


def test_an_empty_numbering_numbers_nothing():
    assert Numbering().number(np.zeros(0, np.int64)).tolist() == []

# SPDX-License-Identifier: Apache-2.0
"""Original against replay: identity, distances by hand, what counts as the run, text, JSON, report, wrong usage."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import characterize
from characterize.counting.in_flight_time import InFlightTime
from characterize.counting.log_histogram import LogHistogram
from characterize.document import plain
from characterize.errors import FlextraceError
from characterize.layout import BlockDataClass, Fileop, HeaderFlag, RecordKind, Source
from characterize.requests import columns_of, requests_of
from characterize.stream import Chunk, stream_of
from characterize.trace import Header
from flextrace.main import main
from replayer.checking.replay_recording import replay_part, run_part
from selfscale.comparing.fidelity import comparison_of, distance_of, load
from selfscale.comparing.fidelity_side import side_of
from selfscale.comparing.fidelity_text import WIDTH, fidelity_lines, number_lines, time_ns
from selfscale.report import write_report
from selfscale.reporting.fidelity_report import fidelity_section
from tests.traces.flexible_traces import KINDS
from tests.traces.made_trace import made_trace, read, write
from tests.traces.replayed import PROCESS, SHIFT_NS, fidelity_of, replayed, result
from tests.truths.straced import needs_engine, op

pytestmark = pytest.mark.parallel

PAGE = 4096


def histogram(values):
    made = LogHistogram()
    made.add(np.array(values, np.int64))
    return made


def busy(**fields):
    """Two threads that read and write and overlap, with a sync, on files of which a part misses the page cache."""
    io = [read(PAGE * at, PAGE, 100 * at, 40 + at, thread=1, missed_bytes=PAGE * (at % 3 == 0)) for at in range(30)]
    io += [write(PAGE * at, PAGE, 100 * at + 20, 50 + at, thread=2, file=2) for at in range(30)]
    fileops = [op(Fileop.FSYNC, 5000, file=2, thread=2)]
    files = [{"file": file, "size_bytes": 1 << 20} for file in (1, 2)]
    return made_trace(io, fileops=fileops, files=files, paths={1: "/a", 2: "/b"}, **fields)


@pytest.mark.parametrize("name", ["busy", "sort", "database"])
def test_a_trace_is_equal_to_itself(name):
    trace = busy() if name == "busy" else KINDS[name]()
    compared = comparison_of(*[run_part(stream_of(trace))] * 2)
    assert compared["original"]["parameters"] == compared["replay"]["parameters"]
    found = [distance for distance in compared["distance"].values() if distance is not None]
    assert len(found) >= 4
    assert all(distance == {"ks": 0, "emd_share": 0} for distance in found)


def test_a_perfect_replay_has_no_distance_and_no_violation():
    trace = busy()
    fidelity = fidelity_of(trace, replayed(trace), result(trace))
    assert fidelity["original"] == fidelity["replay"] | {"page_cache": fidelity["original"]["page_cache"]}
    assert fidelity["original"]["page_cache"]["hitFrac"] == pytest.approx(2 / 3)
    assert all(distance == {"ks": 0, "emd_share": 0} for distance in fidelity["distance"].values())
    assert fidelity["order"]["violations"] == 0
    assert fidelity["order"]["compared"] == fidelity["order"]["operations"] == 61
    assert (fidelity["trustworthy"], fidelity["reasons"], fidelity["notes"]) == (True, [], [])
    differences = {line.difference for line in number_lines(fidelity)}
    assert differences <= {"+0.0%", "+0.0000"}


@given(*[st.lists(st.integers(0, 20), min_size=1, max_size=30)] * 2)
def test_the_largest_difference_is_that_of_scipy(one, other):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of its probability
        expected = stats.ks_2samp(one, other, method="asymp").statistic
    assert distance_of(histogram(one), histogram(other))["ks"] == pytest.approx(expected)


def test_distances_by_hand():
    assert distance_of(histogram([10, 20, 30]), histogram([15, 25, 35])) == {
        "ks": pytest.approx(1 / 3),
        "emd_share": pytest.approx(5 / 20),
    }
    assert distance_of(histogram([1, 1]), histogram([2, 2])) == {"ks": 1, "emd_share": 1}
    assert distance_of(histogram([1]), histogram([])) is None


def test_slower_replays_are_seen_in_the_direction_that_is_slower():
    trace = busy()
    recording = replayed(trace)
    io = recording.arrays[RecordKind.IO]
    io["duration_ns"][io["op"] == 2] *= 3
    fidelity = fidelity_of(trace, recording, result(trace))
    assert fidelity["distance"]["read"] == {"ks": 0, "emd_share": 0}
    assert fidelity["distance"]["write"] == {"ks": 1, "emd_share": pytest.approx(2)}
    assert fidelity["distance"]["in_flight"]["emd_share"] > 0
    assert fidelity["curves"]["write"]["replay_ns"] == [
        3 * value for value in fidelity["curves"]["write"]["original_ns"]
    ]


def test_time_by_number_in_flight_by_hand():
    """Three from 0 to 10, 4 to 8 and 20 to 30, one that starts when another ends."""
    trace = made_trace([read(0, 1, 0, 10), read(0, 1, 4, 4), read(0, 1, 20, 10), read(0, 1, 30, 2)])
    requests, shares = columns_of(requests_of(trace)), InFlightTime()
    for at in range(4):
        shares.add({name: column[at : at + 1] for name, column in requests.items()})
    shares = shares.result()
    assert shares["in_flight"].tolist() == [1, 2]
    assert shares["time_s"].tolist() == pytest.approx([18e-9, 4e-9])
    assert shares["share"].tolist() == pytest.approx([18 / 22, 4 / 22])
    assert InFlightTime().result().empty


def blocks_of(first: int, last: int):
    """Reads and writes of the block layer before, within and after the operations; of others, of the file system."""
    blocks, pieces = [], []
    for at, (start, kind, size) in enumerate(
        [
            (first - 500, BlockDataClass.FILL, 100 * PAGE),  # loading
            (first + 10, BlockDataClass.FILL, 7 * PAGE),
            (first + 20, BlockDataClass.WRITEBACK, 5 * PAGE),
            (first + 30, BlockDataClass.JOURNAL, PAGE),
            (first + 40, BlockDataClass.UNTRACED, 50 * PAGE),
            (last + 50, BlockDataClass.WRITEBACK, 200 * PAGE),  # afterwards
        ]
    ):
        way = 1 if kind == BlockDataClass.FILL else 2
        blocks.append({"op": way, "bytes": size, "start_ns": start, "duration_ns": 5, "sector": 1000 * at})
        pieces.append({"block": at, "class": kind, "bytes": size})
    blocks.append({"op": 2, "bytes": 3 * PAGE, "start_ns": first + 60, "duration_ns": 5})  # of two pieces and a rest
    pieces += [
        {"block": 6, "class": kind, "bytes": PAGE} for kind in (BlockDataClass.WRITEBACK, BlockDataClass.JOURNAL)
    ]
    return {"blocks": blocks, "block_data": pieces}


def test_block_traffic_is_of_the_run_and_of_the_traced_program():
    io = [read(0, PAGE, 1000, 10), write(0, PAGE, 2000, 10)]
    trace = made_trace(io, files=[{"file": 1, "size_bytes": PAGE}], **blocks_of(1000, 2010))
    block = side_of(run_part(stream_of(trace))).numbers["block"]
    assert (block["read_requests"], block["read_bytes"]) == (1, 7 * PAGE)
    assert (block["write_requests"], block["write_bytes"]) == (3, 9 * PAGE)
    classes = {name: (part["write_requests"], part["write_bytes"]) for name, part in block["classes"].items()}
    assert classes == {
        "unknown": (1, PAGE),
        "fill": (0, 0),
        "writeback": (2, 6 * PAGE),
        "journal": (2, 2 * PAGE),
    }


def test_the_engines_own_operations_do_not_count():
    """It reads its image into the page cache, opens and removes files, and reads its trace, in its main thread."""
    trace = busy()
    recording = replayed(
        trace,
        main_io=[read(0, 1 << 20, SHIFT_NS - 900, 400, source=Source.MMAP), read(0, 1 << 20, SHIFT_NS - 400, 300)],
        main_fileops=[op(Fileop.FSYNC, SHIFT_NS - 950), op(Fileop.UNLINK, SHIFT_NS + 10**9)],
    )
    worker = recording.arrays[RecordKind.IO][-1:].copy()
    worker["source"] = Source.MMAP  # of the trace that it reads
    recording.arrays[RecordKind.IO] = np.concatenate([recording.arrays[RecordKind.IO], worker])
    parts = [replay_part(stream_of(one)) for one in (recording, replayed(trace))]
    threads = [
        array["thread"] for part in parts[0].chunks() if isinstance(part, Chunk) for array in part.arrays.values()
    ]
    assert PROCESS not in np.concatenate(threads)
    assert plain(side_of(parts[0]).numbers) == plain(side_of(parts[1]).numbers)


def test_what_is_not_measured_is_null_and_the_rest_is_compared():
    """Of a synthetic trace: no times, no hits, no block layer; processNum is declared, that of the replay counted."""
    made = busy(flags=HeaderFlag.UNTIMED, metadata={"declared": {"processNum": 2}})
    fidelity = fidelity_of(made, replayed(busy()), result(made, order="thread", timing="asap"))
    assert fidelity["original"]["elapsed_s"] is None
    assert fidelity["original"]["response_time"] is None
    assert fidelity["original"]["block"] is None
    assert fidelity["original"]["parameters"] == fidelity["replay"]["parameters"]
    assert set(fidelity["distance"].values()) == {None}
    assert list(fidelity["order"]["rules"]) == ["program_order"]
    lines = fidelity_lines({"fidelity": fidelity})
    assert any(line.split() == ["elapsed", "time", "-", "5", "us"] for line in lines)
    assert [line.split()[:3] for line in lines if line.startswith("    ") and " replay " in line] == [
        [kind, "replay", count] for kind, count in (("read", "30"), ("write", "30"), ("sync", "1"))
    ]
    assert not [line for line in lines if line != line.rstrip()]


@pytest.mark.parametrize(
    ("changes", "trustworthy", "word"),
    [
        ({"order": "recorded"}, False, "interval_order"),
        ({"order": "resource"}, True, "does not promise interval_order"),
        ({"order": "thread"}, True, "does not promise"),
    ],
)
def test_only_an_order_that_was_promised_takes_trust(changes, trustworthy, word):
    trace = busy()
    recording = replayed(trace)
    recording.arrays[RecordKind.IO]["start_ns"][30:] -= 60
    fidelity = fidelity_of(trace, recording, result(trace, **changes))
    assert fidelity["trustworthy"] is trustworthy
    assert word in " ".join(fidelity["reasons"] + fidelity["notes"])


@pytest.mark.parametrize(("order", "trustworthy"), [("resource", False), ("recorded", False), ("thread", True)])
def test_a_call_before_the_one_that_it_was_woken_after_takes_trust(order, trustworthy):
    """Of another file, so that no rule of a resource tells; the text and the verdict name the rule as any other."""
    trace = busy(wakes=[{"id": 2, "cause": 1, "start_ns": 5000, "duration_ns": 1, "thread": 2}])
    trace.arrays[RecordKind.IO]["id"][29], trace.arrays[RecordKind.FILEOP]["id"][0] = 1, 2
    recording = replayed(trace)
    recording.arrays[RecordKind.IO]["start_ns"][29] += 3000
    fidelity = fidelity_of(trace, recording, result(trace, order=order))
    assert fidelity["order"]["rules"]["wake_ups"]["violations"] == 1
    assert fidelity["trustworthy"] is trustworthy
    assert "wake_ups" in " ".join(fidelity["notes" if trustworthy else "reasons"])
    assert ["wake", "ups", "1", "1"] in [line.split() for line in fidelity_lines({"fidelity": fidelity})]


def test_losses_added_operations_and_parts_are_said():
    trace = busy()
    recording = replayed(trace)
    recording.header = Header(flags=HeaderFlag.LOST, lost={RecordKind.IO: 3})
    io = recording.arrays[RecordKind.IO]
    added = io[-1:].copy()
    added["offset"] += 1
    recording.arrays[RecordKind.IO] = np.concatenate([io, added])
    fidelity = fidelity_of(trace, recording, result(trace, stopped="signal", mismatches={"short": 2, "failed": 1}))
    text = " ".join(fidelity["reasons"])
    assert "lost records" in text
    assert "1 reads or writes that are not in the trace" in text
    assert "ended by signal" in " ".join(fidelity["notes"])
    assert fidelity["lost"] == {"original": {}, "replay": {"IO": 3}}
    assert fidelity["results"] == {"compared": 61, "differed": 3, "share": pytest.approx(3 / 61)}


def awkward():
    """Large numbers, long names, all classes of blocks, and violations with their examples."""
    io = [write((1 << 40) + PAGE * at, 1 << 30, 10**6 * (1 + at), 10**12, thread=1 + at % 2) for at in range(40)]
    fileops = [op(Fileop.FSYNC, 10**13, duration_ns=10**11)]
    long_name = {1: "/data/" + "very-long-directory-name/" * 10 + "file"}
    files = [{"file": 1, "size_bytes": 1 << 42}]
    trace = made_trace(io, fileops=fileops, files=files, paths=long_name, **blocks_of(10**6, 10**13))
    recording = replayed(trace)
    recording.arrays[RecordKind.IO]["start_ns"] += np.random.default_rng(1).integers(0, 10**13, 40).astype(np.uint64)
    return fidelity_of(trace, recording, result(trace, timing="asap", accuracy={"lateness": LATENESS}))


LATENESS = {"count": 5, "mean_ns": 1e9, "p50_ns": 1, "p90_ns": 10**12, "p99_ns": 10**12, "p999_ns": 1, "max_ns": 10**12}


def test_the_text_fits_80_columns_whatever_the_numbers():
    for fidelity in (awkward(), fidelity_of(busy(), replayed(busy()), result(busy()))):
        lines = fidelity_lines({"fidelity": fidelity})
        assert max(map(len, lines)) <= WIDTH < 80
        assert any("violations" in line for line in lines)
        assert [line for line in lines if "p99.9" in line]


def test_the_document_keeps_its_keys():
    """Users' programs read these."""
    fidelity = awkward()
    assert fidelity["schema"] == "flextrace.fidelity/1"
    assert list(fidelity) == [
        *("schema", "original", "replay", "distance", "curves", "results", "lateness", "order", "lost"),
        *("trustworthy", "reasons", "notes"),
    ]
    side = [
        "parameters",
        "requests",
        "operations",
        "threads",
        "elapsed_s",
        "requests_per_s",
        "bytes_per_s",
        "in_flight",
    ]
    side += ["response_time", "run_delay", "think_time", "computing", "waits", "page_cache", "block"]
    assert list(fidelity["original"]) == list(fidelity["replay"]) == side
    assert list(fidelity["original"]["parameters"]) == ["uniqueBytes", "seqFrac", "readFrac", "sizeMean", "processNum"]
    assert list(fidelity["distance"]) == ["read", "write", "sync", "think", "in_flight"]
    assert list(fidelity["order"]["rules"]["program_order"]) == [
        *("meaning", "checked", "violations", "early_ns_max", "examples")
    ]
    json.dumps(fidelity, allow_nan=False)


def test_the_report_has_the_comparison_and_its_figures(tmp_path):
    document = result(busy()) | {"fidelity": awkward(), "command": "flextrace replay"}
    path = tmp_path / "r.json"
    path.write_text(json.dumps(document))
    assert main(["report", "-o", str(tmp_path / "r.html"), "--replay", str(path)]) == 0
    text = (tmp_path / "r.html").read_text()
    for words in (
        "Replay: t.iotrace",
        "original and replay",
        "KS",
        "program order",
        "First violations",
        "write, replay",
    ):
        assert words in text, words
    figures = fidelity_section(1, document).figures
    assert [figure.title.split(",")[0] for figure in figures] == ["Response times", "Think times", "Requests in flight"]
    assert {trace.name for trace in figures[0].plot.data} == {
        *("write, original", "write, replay", "sync, original", "sync, replay")
    }
    empty = fidelity_of(
        made_trace(), replayed(made_trace()), result(made_trace(), operations={"records": 0, "skipped": 0})
    )
    assert fidelity_section(1, document | {"fidelity": empty}).figures == []
    write_report(tmp_path / "empty.html", replays=[document | {"fidelity": empty}])


def test_the_report_draws_how_late_the_replay_was():
    """Where the engine tells it: older ones have no buckets, and timing asap has no due times."""
    buckets = {"below_ns": [1, 1 << 10, 1 << 20], "counts": [13, 7, 3]}
    document = result(busy()) | {"fidelity": awkward() | {"lateness": LATENESS | {"count": 23, "buckets": buckets}}}
    figure = fidelity_section(1, document).figures[-1]
    assert figure.title == "Lateness of the replay"
    assert figure.data.to_dict("list") == {"below_us": [0.001, 1.024, 1048.576], "operations": [13, 7, 3]}
    assert list(figure.plot.data[0].y) == [13, 7, 3]
    for without in (LATENESS, None):
        older = document | {"fidelity": awkward() | {"lateness": without}}
        assert [one.title for one in fidelity_section(1, older).figures][-1].startswith("Requests in flight")


def test_what_is_no_recorded_replay_is_refused(tmp_path):
    path = tmp_path / "r.json"
    with pytest.raises(FlextraceError, match="cannot read"):
        load(path)
    path.write_text("{")
    with pytest.raises(FlextraceError, match="no JSON"):
        load(path)
    path.write_text(json.dumps(result(busy())))
    with pytest.raises(FlextraceError, match="--record"):
        load(path)


@needs_engine
@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--record", "there.iotrace"], "there.iotrace exists already"),
        (["--record", "there.parquet"], "export"),
        (["--record", "--loop", "--max-time", "1"], "--loop"),
        (["--record", "--engine", "null"], "null engine"),
    ],
)
def test_wrong_usage_stops_before_anything_is_made(tmp_path, capsys, monkeypatch, options, word):
    monkeypatch.chdir(tmp_path)
    path = characterize.write(busy(), tmp_path / "t.iotrace")
    there = tmp_path / "there.iotrace"
    there.write_text("precious")
    assert main(["replay", str(path), "--directory", str(tmp_path / "image"), *options]) == 2
    assert word in capsys.readouterr().err
    assert there.read_text() == "precious"
    assert not (tmp_path / "image").exists()


@pytest.mark.parametrize(
    ("value", "text"), [(12.3e3, "12.3 us"), (0.9996e9, "1 s"), (123.4e9, "123 s"), (1234e9, "1234 s")]
)
def test_times_have_no_exponent(value, text):
    assert time_ns(value) == text

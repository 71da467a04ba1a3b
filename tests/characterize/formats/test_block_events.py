# SPDX-License-Identifier: Apache-2.0
"""Events of the block layer: made by the documented layout and read by blkparse too, by perf, and paired naively."""

import gzip
import subprocess
from collections import defaultdict
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import characterize
from characterize.errors import FlextraceError
from characterize.formats import blktrace
from characterize.formats.block_events import EVENT_DTYPE, Action, EventPairing, op_and_flags
from characterize.formats.reading import Reading, ReadOptions
from characterize.formats.registry import FORMATS, found_format
from characterize.layout import NOT_MEASURED_U64, BlockFlag, BlockForm, BlockOp, RecordKind
from characterize.workload import workload_of
from tests.traces.block_events import BLKPARSE, PERF, QUEUE, READ, SDA, WRITE, event, needs_blkparse, two_cpus

pytestmark = pytest.mark.parallel

WANTED = [
    # start, duration, sector, bytes, operation, flags, thread, queued
    (1500, 1000, 800, 4608, BlockOp.READ, 0, 77, 500),
    (3900, 1400, 1600, 8192, BlockOp.WRITE, BlockFlag.SYNC | BlockFlag.REQUEUED, 77, 900),
    (5410, 40, 0, 0, BlockOp.FLUSH, 0, 78, 10),
    (6000, 7, 4096, 1024, BlockOp.READ, BlockFlag.READAHEAD | BlockFlag.META | BlockFlag.UNATTRIBUTED, 79, None),
]
FIELDS = ("start_ns", "duration_ns", "sector", "bytes", "op", "flags", "thread", "queued_ns")


def found_in(trace, since=0):
    rows = zip(*(trace.blocks[name].tolist() for name in FIELDS), strict=True)
    return [(row[0] + since, *row[1:7], None if row[7] == NOT_MEASURED_U64 else row[7]) for row in rows]


def write_cpus(place, parts):
    for cpu, content in enumerate(parts):
        (place / f"sda.blktrace.{cpu}").write_bytes(content)
    return place / "sda.blktrace.0"


@pytest.mark.parametrize("more", [{}, {"version": 8}, {"order": ">"}, {"version": 8, "order": ">"}])
@pytest.mark.parametrize("read_bytes", [8 << 20, 97])
def test_blktrace_files_of_two_cpus(tmp_path, monkeypatch, more, read_bytes):
    """In whatever pieces the files are read, version and byte order."""
    monkeypatch.setattr(blktrace, "READ_BYTES", read_bytes)
    path = write_cpus(tmp_path, two_cpus(**more))
    assert found_format(path).name == "blktrace"
    for cpu in (0, 1):  # any of them names all
        trace = characterize.open(tmp_path / f"sda.blktrace.{cpu}")
        assert found_in(trace) == WANTED
        assert trace.blocks["status"].tolist() == [0, 0, 0, 10]
        assert set(trace.blocks["device"]) == {SDA}
        imported = trace.header.metadata["imported"]
        assert (imported["files"], imported["began_realtime_ns"]) == (2, 1_700_000_000 * 10**9 + 5)
        header = trace.header
        assert header.start_realtime_ns - header.start_monotonic_ns == imported["began_realtime_ns"]
        assert header.end_realtime_ns - header.end_monotonic_ns == imported["began_realtime_ns"]
        assert imported["left_out_issues_without_a_completion"] == 1
        assert trace.tasks[["thread", "comm"]].to_numpy().tolist() == [[77, "dbench"]]


def test_blktrace_files_that_were_compressed_belong_together(tmp_path):
    """Also one of a CPU that saw nothing; the plain ones beside them are the same once more."""
    parts = (*two_cpus(), b"")
    write_cpus(tmp_path, parts)
    for cpu, content in enumerate(parts):
        (tmp_path / f"sda.blktrace.{cpu}.gz").write_bytes(gzip.compress(content))
    for name, files in (("sda.blktrace.1.gz", 3), ("sda.blktrace.1", 2)):
        trace = characterize.open(tmp_path / name)
        assert found_in(trace) == WANTED
        assert trace.header.metadata["imported"]["files"] == files


def test_what_is_queued_first_moves_to_where_a_front_merge_lets_its_request_begin(tmp_path):
    """Twice in front of one request; a later one where that first began was queued for as long as its own bio."""
    merged = (QUEUE, 3)
    content = event(10, "Q", 116, 4096, READ)
    content += event(20, "Q", 108, 4096, READ) + event(21, merged, 108, 4096, READ)
    content += event(30, "Q", 100, 4096, READ) + event(31, merged, 100, 4096, READ)
    content += event(50, "D", 100, 3 * 4096, READ) + event(90, "C", 100, 3 * 4096, READ)
    content += event(1000, "Q", 116, 4096, READ) + event(1002, "D", 116, 4096, READ) + event(1009, "C", 116, 4096, READ)
    content += event(2000, "Q", 108, 4096, READ) + event(2003, "D", 108, 4096, READ) + event(2009, "C", 108, 4096, READ)
    assert found_in(characterize.open(write_cpus(tmp_path, (content,)))) == [
        (50, 40, 100, 3 * 4096, BlockOp.READ, 0, 77, 40),
        (1002, 7, 116, 4096, BlockOp.READ, 0, 77, 2),
        (2003, 6, 108, 4096, BlockOp.READ, 0, 77, 3),
    ]


@needs_blkparse
def test_blkparse_reads_the_same_and_its_text_gives_the_same(tmp_path):
    write_cpus(tmp_path, two_cpus())
    text = subprocess.run(
        ["blkparse", "sda", "-d", "merged.bin"], cwd=tmp_path, check=True, capture_output=True, text=True
    ).stdout
    assert "Total (sda):" in text or "CPU1 (sda):" in text  # the summary has to be recognized
    (tmp_path / "sda.txt").write_text(text)
    assert found_format(tmp_path / "sda.txt").name == "blkparse"
    assert found_in(characterize.open(tmp_path / "merged.bin"), since=1000) == WANTED
    from_text = characterize.open(tmp_path / "sda.txt")
    assert found_in(from_text, since=1000) == WANTED
    assert from_text.blocks["status"].tolist() == [0, 0, 0, 10]
    assert dict(zip(from_text.tasks["thread"], from_text.tasks["comm"], strict=True))[77] == "dbench"


def test_damaged_blktrace_files_are_named(tmp_path):
    first, second = two_cpus()
    path = write_cpus(tmp_path, (first, second))
    (tmp_path / "sda.blktrace.1").write_bytes(second[:48] + b"\0" * 48)
    with pytest.raises(FlextraceError, match=r"sda.blktrace.1 byte 48: expected an event of blktrace, found b"):
        characterize.open(path)
    (tmp_path / "sda.blktrace.1").write_bytes(second[:-5])
    with pytest.raises(FlextraceError, match=rf"byte {len(second) - 48}: expected a whole event, not 43 bytes"):
        characterize.open(path)


def test_what_is_told_of_zeroes_and_zones(tmp_path):
    """The kernel calls all of them writes as well."""
    kinds = {1 << 16: BlockOp.WRITE, 1 << 17: BlockOp.ZONE, 1 << 21: BlockOp.ZONE, 1 << 22: BlockOp.WRITE_ZEROES}
    content = b"".join(
        event(1000 * at + after, act, 800, 4096, WRITE | bits, version=8)
        for at, bits in enumerate(kinds)
        for after, act in ((0, "D"), (500, "C"))
    )
    path = write_cpus(tmp_path, [content])
    trace = characterize.open(path)
    assert trace.blocks["op"].tolist() == list(kinds.values())
    assert workload_of(trace, "block").unique_bytes == 4096


def test_a_bio_based_device_has_no_issues(tmp_path):
    dm = {"device": 253 << 20}
    content = event(10, "Q", 8, 4096, READ, **dm) + event(30, "C", 8, 4096, READ, **dm)
    trace = characterize.open(write_cpus(tmp_path, (content,)))
    assert found_in(trace) == [(10, 20, 8, 4096, BlockOp.READ, 0, 77, None)]
    assert trace.blocks["form"].tolist() == [BlockForm.BIO]


def test_blkparse_by_hand(tmp_path):
    path = tmp_path / "x.txt"
    path.write_text(BLKPARSE)
    trace = characterize.open(path)
    assert found_in(trace) == [(6000, 694013, 223490, 4096, BlockOp.WRITE, 0, 697, 6000)]
    assert trace.blocks["device"].tolist() == [8 << 20 | 16]
    path.write_text(BLKPARSE + "  8,16   0        8     0.7    0  C   W 223490 + eight [0]\n")
    with pytest.raises(FlextraceError, match=r"line 9: expected MAJOR,MINOR CPU SEQUENCE TIME PID"):
        characterize.open(path)


def test_perf_script_by_hand(tmp_path):
    """Lines of three versions of the kernel."""
    path = tmp_path / "x.txt"
    path.write_text(PERF)
    assert found_format(path).name == "perf"
    trace = characterize.open(path)
    fua_sync = BlockFlag.FUA | BlockFlag.SYNC
    assert found_in(trace) == [
        (100_000_005_000, 100_000, 2048, 8192, BlockOp.WRITE, fua_sync, 123, 4000),
        (100_000_006_000, 101_000, 8, 512, BlockOp.READ, BlockFlag.UNATTRIBUTED, 7, None),
    ]
    assert trace.blocks["status"].tolist() == [0, 10]
    assert sorted(trace.tasks["comm"]) == ["kworker/u8:1-ev", "two words"]
    path.write_text(PERF.replace("8 + 1 [two", "8 * 1 [two"))
    with pytest.raises(FlextraceError, match=r"line 7: expected COMM PID"):
        characterize.open(path)


@pytest.mark.parametrize(
    ("letters", "op", "flags"),
    [
        ("R", BlockOp.READ, 0),
        ("RA", BlockOp.READ, BlockFlag.READAHEAD),
        ("RSM", BlockOp.READ, BlockFlag.SYNC | BlockFlag.META),
        ("WS", BlockOp.WRITE, BlockFlag.SYNC),
        ("WFS", BlockOp.WRITE, BlockFlag.FUA | BlockFlag.SYNC),
        ("FWFS", BlockOp.WRITE, BlockFlag.PREFLUSH | BlockFlag.FUA | BlockFlag.SYNC),
        ("F", BlockOp.FLUSH, 0),
        ("FF", BlockOp.FLUSH, 0),
        ("FN", BlockOp.FLUSH, 0),
        ("D", BlockOp.DISCARD, 0),
        ("DE", BlockOp.SECURE_ERASE, 0),
        ("WZS", BlockOp.WRITE_ZEROES, BlockFlag.SYNC),
        ("ZAS", BlockOp.WRITE, BlockFlag.SYNC),
        ("ZRA", BlockOp.ZONE, 0),
        ("ZF", BlockOp.ZONE, 0),
        ("N", BlockOp.OTHER, 0),
    ],
)
def test_letters_of_the_kernel(letters, op, flags):
    assert op_and_flags(letters) == int(op) | int(flags) << 8


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(sorted(set(Action) - {Action.OTHER, Action.REMAPPED})),
        st.integers(0, 2),
    ),
    max_size=40,
)


@settings(max_examples=500)
@given(EVENTS, st.lists(st.integers(0, 40), max_size=3))
def test_pairing_is_that_of_queues_of_python(events, cuts):
    """Of each sector the oldest issue completes, wherever the events are cut into chunks."""
    array = np.zeros(len(events), EVENT_DTYPE)
    for time, (action, sector) in enumerate(events):
        array[time] = (time, sector, 1, 0, 512, 100 + time, 0, action, BlockOp.READ, 0)
    queued, issued, wanted = defaultdict(list), defaultdict(list), []
    for time, (action, sector) in enumerate(events):
        if action == Action.QUEUED:
            queued[sector].append(time)
        elif action == Action.MERGED and queued[sector]:
            queued[sector].pop()
        elif action == Action.FRONT_MERGED:
            queued[sector] = queued[sector][:-1] + queued[sector + 1][:1]
            del queued[sector + 1][:1]
        elif action == Action.REQUEUED and issued[sector]:
            issued[sector][-1].update(start=issued[sector][-1]["first"], waits=True)
        elif action == Action.ISSUED and issued[sector] and issued[sector][-1]["waits"]:
            issued[sector][-1].update(start=time, waits=False, again=True)
        elif action == Action.ISSUED:
            submitted = queued[sector].pop(0) if queued[sector] else time
            issued[sector].append({"first": time, "start": time, "by": submitted, "waits": False, "again": False})
        elif action == Action.COMPLETED:
            if issued[sector]:
                one = issued[sector].pop(0)
                again = one["again"] and not one["waits"]
                by = one["start"] if one["by"] == one["first"] else one["by"]
                wanted.append((one["start"], time - one["start"], sector, 100 + by, again))
            elif queued[sector]:
                start = queued[sector].pop(0)
                wanted.append((start, time - start, sector, 100 + start, False))
    pairing = EventPairing(Reading("x", FORMATS["perf"], ReadOptions()))
    found = []
    bounds = sorted({0, len(events), *(cut for cut in cuts if cut < len(events))})
    for first, last in pairwise(bounds):
        for row in pairing.chunk(array[first:last]).arrays[RecordKind.BLOCK]:
            numbers = (int(row[name]) for name in ("start_ns", "duration_ns", "sector", "thread"))
            found.append((*numbers, bool(row["flags"] & BlockFlag.REQUEUED)))
    assert sorted(found) == sorted(wanted)

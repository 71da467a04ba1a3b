# SPDX-License-Identifier: Apache-2.0
"""merge, clone and repeat of traces of block requests alone: every request as often as it must be there, and run."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest

import characterize
from characterize.errors import FlextraceError
from characterize.layout import BlockFlag, BlockOp, HeaderFlag, RecordKind
from characterize.stream import stream_of
from flextrace.main import main
from replayer.alter import Relative, alter
from replayer.cut import Selection, cut
from replayer.devices.block_lanes import BlockOperations
from replayer.merge import clone, merge
from replayer.repeat import repeat
from tests.traces.made_trace import made_trace, read

pytestmark = pytest.mark.parallel

COUNT = 211
SDA, SDB, DM = 8 << 20, 8 << 20 | 16, 253 << 20
DATA = (BlockOp.READ, BlockOp.WRITE)
FILETIME_2007 = 128_166_372_000_000_000


def disks(seed=1, count=COUNT, **fields):
    """Requests of two disks, up to 5 in flight; a flush, a discard and the same data on a stacked device among them."""
    random = np.random.default_rng(seed)
    rows = []
    for at in range(count):
        way = BlockOp.READ if random.random() < 0.6 else BlockOp.WRITE
        place = {"sector": int(random.integers(0, 10_007)) << 3, "bytes": int(random.integers(1, 17)) << 12}
        times = {"start_ns": 10_007 * (at + 1), "duration_ns": int(random.integers(1_000, 50_000))}
        who = {"thread": 31 + at % 3, "process": 31, "cause": 7, "queued_ns": 3}
        rows.append({"op": way, "device": SDB if at % 5 == 0 else SDA, **place, **times, **who})
    rows.append({"op": BlockOp.FLUSH, "start_ns": 10_008, "duration_ns": 5})
    rows.append({"op": BlockOp.DISCARD, "start_ns": 10_009, "duration_ns": 5, "sector": 8, "bytes": 4096})
    rows += [row | {"device": DM, "flags": BlockFlag.STACKED} for row in rows[:7]]
    tasks = [{"thread": 31 + at, "process": 31, "parent_process": 1, "comm": b"writer"} for at in range(3)]
    return made_trace(blocks=rows, tasks=tasks, **fields)


def requests(trace, *devices):
    """What requests ask for, in the order of their starts, without devices or of one."""
    blocks = trace.arrays[RecordKind.BLOCK]
    blocks = blocks[(blocks["flags"] & BlockFlag.STACKED) == 0]
    blocks = blocks[np.argsort(blocks["start_ns"], kind="stable")]
    blocks = blocks[np.isin(blocks["device"], devices)] if devices else blocks
    return [tuple(row) for row in blocks[["op", "sector", "bytes", "duration_ns", "flags"]].tolist()]


def begin_of(trace, *devices):
    blocks = trace.arrays[RecordKind.BLOCK]
    return int(blocks["start_ns"][np.isin(blocks["device"], devices)].min())


def devices_of(trace):
    return set(trace.arrays[RecordKind.BLOCK]["device"].tolist())


def parameters(trace):
    return trace.header.metadata["lineage"]["parameters"]


def deepest(trace):
    """Most data requests at any start, counted one by one."""
    blocks = trace.arrays[RecordKind.BLOCK]
    blocks = blocks[np.isin(blocks["op"], DATA) & ((blocks["flags"] & BlockFlag.STACKED) == 0)]
    start, end = blocks["start_ns"], blocks["start_ns"] + blocks["duration_ns"]
    return max(int(((start <= moment) & (end > moment)).sum()) for moment in start)


def test_copies_have_devices_of_their_own_and_add_up():
    parent = disks()
    before, made = parameters(cut(parent, Selection())), clone(parent, 3)
    assert made.header.flags & HeaderFlag.PLANNED
    assert Counter(requests(made)) == Counter({row: 3 * times for row, times in Counter(requests(parent)).items()})
    assert {SDA, SDB} < devices_of(made)
    assert len(devices_of(made)) == 6
    by_device = Counter(tuple(requests(made, device)) for device in devices_of(made))
    assert by_device == {tuple(requests(parent, device)): 3 for device in (SDA, SDB)}
    after = parameters(made)
    assert after == before | {
        "uniqueBytes": 3 * before["uniqueBytes"],
        "processNum": 3 * before["processNum"],
    }
    assert after["processNum"] == deepest(made) == 3 * deepest(parent) == made.declared["processNum"]
    blocks = made.arrays[RecordKind.BLOCK]
    assert (np.diff(blocks["start_ns"].astype(np.int64)) >= 0).all()
    assert not blocks["cause"].any()  # neither it nor the queue is known before they run
    threads = made.arrays[RecordKind.TASK]["thread"].tolist()
    assert len(set(threads)) == 9
    assert set(blocks["thread"][blocks["thread"] > 0].tolist()) == set(threads)


def test_a_part_of_copies_declares_how_many_requests_of_it_are_in_flight():
    parent = disks()
    made = clone(parent, 3)
    for devices in (["8:0"], ["8:0", "8:16"]):
        part = cut(made, Selection(devices=devices))
        assert part.declared == {"processNum": deepest(part)}
        assert parameters(part)["processNum"] == deepest(part) > 1
        altered, manifest = alter(part, {"processNum": Relative(2)})
        assert manifest.achieved.process_num == deepest(altered) == 2 * deepest(part)
    assert deepest(part) == deepest(parent)


def test_merged_traces_begin_together_or_by_the_clock():
    metadata = {"devices": [{"device": "8:0", "name": "sda", "sectors": 10_007 << 4}]}
    one = disks(metadata=metadata, start_monotonic_ns=10_007, start_realtime_ns=5_000_000)
    other = disks(2, 101, metadata=metadata, start_monotonic_ns=10_007, start_realtime_ns=6_000_003)
    for align, later in (("starts", 0), ("clocks", 1_000_003)):
        made = merge([one, other], align)
        assert Counter(requests(made, SDA, SDB)) == Counter(requests(one))
        assert Counter(requests(made, 1, 2)) == Counter(requests(other))
        assert begin_of(made, 1, 2) - begin_of(made, SDA, SDB) == later
    names = {it["device"]: it for it in made.header.metadata["devices"]}
    assert names["8:0"] == {"device": "8:0", "name": "sda", "sectors": 10_007 << 4}
    assert sorted(it["name"] for it in names.values()) == ["8:16", "8:16 (2)", "sda", "sda (2)"]
    assert devices_of(cut(made, Selection(devices=["0:1"]))) == {1}


def test_passes_follow_each_other_on_the_same_devices():
    parent = disks()
    made = repeat(parent, 7)
    once = requests(parent)
    assert requests(made) == once * 7
    assert devices_of(made) == {SDA, SDB}
    blocks = made.arrays[RecordKind.BLOCK]
    for number in range(1, 7):
        earlier = blocks[: number * len(once)]
        assert (earlier["start_ns"] + earlier["duration_ns"]).max() < blocks["start_ns"][number * len(once)]
    before, after = parameters(cut(parent, Selection())), parameters(made)
    assert after["processNum"] == deepest(made) == deepest(parent)
    assert [after[name] for name in ("uniqueBytes", "readFrac", "sizeMean")] == [
        before[name] for name in ("uniqueBytes", "readFrac", "sizeMean")
    ]


def test_one_copy_or_pass_keeps_every_record():
    parent = disks()
    for made in (clone(parent, 1), repeat(parent, 1), merge([parent])):
        assert made.arrays[RecordKind.BLOCK].tobytes() == parent.arrays[RecordKind.BLOCK].tobytes()
        assert made.header.flags == parent.header.flags


def test_what_is_made_can_be_made_another_one():
    made = repeat(clone(merge([disks(), disks(2, 101)]), 2), 3)
    wanted = Counter(requests(disks())) + Counter(requests(disks(2, 101)))
    assert Counter(requests(made)) == Counter({row: 6 * times for row, times in wanted.items()})
    altered, manifest = alter(made, {"readFrac": Relative(0.5)})
    assert not manifest.off
    assert len(devices_of(altered)) == 8


def test_the_devices_lie_end_to_end_in_a_replay_of_all():
    parent = disks()
    with pytest.raises(FlextraceError, match="--source all"):
        BlockOperations(stream_of(clone(parent, 3)))
    made = clone(parent, 3)
    found = BlockOperations(stream_of(made, 3), "all")
    io = np.concatenate([io for io, _ in found])
    ends = {
        device: -(-max(512 * sector + size for _, sector, size, *_ in requests(made, device)) // 4096) * 4096
        for device in devices_of(made)
    }
    wanted, base = Counter(), 0
    for device in sorted(ends):
        wanted.update((base + 512 * sector, size) for op, sector, size, *_ in requests(made, device) if op in DATA)
        base += ends[device]
    assert Counter(zip(io["offset"].tolist(), io["asked_bytes"].tolist(), strict=True)) == wanted
    assert len(io) == 3 * COUNT
    assert found.size_bytes == base
    assert found.source == "6 devices"
    assert BlockOperations(stream_of(made), "8:0").size_bytes == ends[SDA]


@pytest.mark.parametrize("verb", ["alter", "merge", "clone", "repeat"])
def test_a_trace_without_requests_is_refused_by_the_verb_that_was_asked(verb):
    empty = made_trace(blocks=[{"op": BlockOp.FLUSH}])
    make = {
        "alter": lambda: alter(empty, {"readFrac": 0.5}),
        "merge": lambda: merge([disks(), empty]),
        "clone": lambda: clone(empty, 2),
        "repeat": lambda: repeat(empty, 2),
    }
    with pytest.raises(FlextraceError, match=f"cannot {verb} the trace: it has no requests"):
        make[verb]()


def test_requests_of_programs_and_of_the_block_layer_do_not_mix():
    programs = made_trace([read(0, 4096)], files=[{"file": 1, "size_bytes": 4096}], tasks=[{"thread": 1, "process": 1}])
    with pytest.raises(FlextraceError, match="merge traces of one kind"):
        merge([programs, disks()])


def msr(path, host, count):
    """A trace as the SNIA has it; its rows by what they ask for."""
    lines, rows = [], Counter()
    for at in range(count):
        kind, offset, size = ("Read", "Write")[at % 3 == 0], 4096 * (at * 37 % 101), 4096 * (1 + at % 5)
        lines.append(f"{FILETIME_2007 + 1013 * at},{host},0,{kind},{offset},{size},5003")
        rows[BlockOp.WRITE if at % 3 == 0 else BlockOp.READ, offset // 512, size] += 1
    path.write_text("\n".join(lines) + "\n")
    return rows


def asked(trace):
    return Counter(tuple(row) for row in trace.arrays[RecordKind.BLOCK][["op", "sector", "bytes"]].tolist())


def test_imported_traces_are_merged_cloned_repeated_and_exported_again(tmp_path, capsys):
    one, other, out, table = (tmp_path / name for name in ("usr.csv", "src.csv", "out.iotrace", "out.csv"))
    of_one, of_other = msr(one, "usr", 211), msr(other, "src1", 103)
    for words, wanted in (
        (["merge", one, other], of_one + of_other),
        (["merge", one, one], of_one + of_one),
        (["clone", other, "--copies", 5], Counter({row: 5 * times for row, times in of_other.items()})),
        (["repeat", one, "--times", 7], Counter({row: 7 * times for row, times in of_one.items()})),
    ):
        assert main([*map(str, words), "-o", str(out), "--force", "--format", "json"]) == 0
        told = capsys.readouterr()
        several = words[0] != "repeat"
        assert ("--device DEV --source all" in told.err) == several
        made = characterize.open(out)
        assert asked(made) == wanted
        assert json.loads(told.out)["parameters"]["processNum"] == deepest(made)
        assert main(["export", str(out), "-o", str(table), "--force"]) == 0
        again = characterize.open(table)
        assert asked(again) == wanted
        assert len(devices_of(again)) == len(devices_of(made))
        capsys.readouterr()
    assert main(["merge", str(one), str(one), "-o", str(out), "--force"]) == 0
    made = characterize.open(out)
    assert {made.device_name(device) for device in devices_of(made)} == {"usr_0", "usr_0 (2)"}

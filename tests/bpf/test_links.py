# SPDX-License-Identifier: Apache-2.0
"""Each byte that a device moves is linked with the operation that caused it, on three file systems.

The truth is what the program did (tests/programs/load.c) and what mincore(2) said.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest

import characterize
from characterize.layout import BlockDataClass, BlockOp, IoOp
from tests.machines.kernel import has_tracepoint, has_type
from tests.machines.loop_file_system import LoopFileSystem, loop_file_system
from tests.machines.overlay import overlay
from tests.truths.told import PROGRAMS, RECORDER, Recorded, parse, run_recorder

PAGE_BYTES = 4096
STRETCH_BYTES = 1 << 20  # the last operation that dirtied such a stretch is the cause of its write-back
FILE_BYTES = 1499 * PAGE_BYTES  # of tests/programs/load.c
DIRECT = [f"direct-{engine}-{op}" for engine in ("syscall", "aio", "io_uring") for op in ("read", "write")]
CLASS = {
    "direct": BlockDataClass.DIRECT,
    "cold": BlockDataClass.FILL,
    "write": BlockDataClass.WRITEBACK,
}

BTRFS_MAGIC = 0x9123683E

pytestmark = [pytest.mark.records, pytest.mark.parallel]


@dataclass
class Load:
    """One run of a mode: its operations as told and as recorded, and the pieces of the device's requests."""

    run: Recorded
    mode: str
    read_ahead_bytes: int
    io: pd.DataFrame
    pieces: pd.DataFrame

    @property
    def op(self) -> BlockOp:
        return BlockOp.WRITE if "write" in self.mode else BlockOp.READ

    def linked(self) -> pd.DataFrame:
        """Pieces of the file's data of the right class, each with the operation that is named as its cause."""
        right = self.pieces[self.pieces["class"] == CLASS[self.mode.split("-")[0]]]
        return right.merge(self.io, left_on="cause", right_on="id", suffixes=("", "_io"))


def pages(offsets, sizes) -> set[int]:
    return {
        page
        for offset, size in zip(offsets, sizes, strict=True)
        for page in range(int(offset) // PAGE_BYTES, -(-int(offset + size) // PAGE_BYTES))
    }


@pytest.fixture(scope="module", params=["ext4", "xfs", "btrfs"])
def loads(request, tmp_path_factory):
    """Runs by mode on a file system, each recorded once, when the first test asks for it."""
    directory = tmp_path_factory.mktemp(request.param)
    done: dict[str, Load] = {}
    with loop_file_system(request.param, directory) as system:

        def load(mode: str) -> Load:
            if mode not in done:
                done[mode] = record_load(system, mode, directory / f"{mode}.iotrace")
            return done[mode]

        yield load


def record_load(system: LoopFileSystem, mode: str, trace_path: Path) -> Load:
    program = PROGRAMS / "load"
    subprocess.run([program, system.place, "prepare"], check=True, timeout=120)
    subprocess.run(["sync", "-f", system.place], check=True, timeout=120)
    if mode == "write-back":
        output = record_write_back(system, trace_path)
    else:
        done = run_recorder(trace_path, program, system.place, mode)
        assert done.returncode == 0, done.stderr
        output = done.stdout
    told, others = parse(output)
    trace = characterize.open(trace_path)
    assert not trace.header.lost
    run = Recorded(system.place, told, others, trace, "")
    data = next(file for file, name in run.names.items() if name == "data")
    pieces = trace.block_data[trace.block_data["device"] == system.disk.number]
    assert (pieces["block"] >= 0).all()
    requests = trace.blocks[["op", "sector", "bytes"]].add_suffix("_block")
    pieces = pieces.merge(requests, left_on="block", right_index=True)
    load = Load(run, mode, read_ahead_bytes(system), trace.io[trace.io["file"] == data], pieces)
    load.pieces = pieces[(pieces["file"] == data) & (pieces["op_block"] == load.op)]
    return load


def read_ahead_bytes(system: LoopFileSystem) -> int:
    """The window of the file system, which may have one of its own: btrfs has 4 MiB, whatever its device says."""
    places = [system.disk.system_directory / "queue", *Path("/sys/class/bdi").glob(f"{system.kind}-*")]
    return max(int((place / "read_ahead_kb").read_text()) for place in places) * 1024


def record_write_back(system: LoopFileSystem, trace_path: Path) -> str:
    """The pages are written back by this process, which is not traced."""
    recorder = subprocess.Popen(
        [RECORDER, "-o", trace_path, "--", PROGRAMS / "load", system.place, "write-back"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        lines = []
        while (line := recorder.stdout.readline()) not in {"dirtied\n", ""}:
            lines.append(line)
        subprocess.run(["sync", "-f", system.place], check=True, timeout=120)
        output, errors = recorder.communicate("go\n", timeout=120)
        assert recorder.returncode == 0, errors
    finally:
        recorder.kill()
        recorder.wait(timeout=120)
    return "".join(lines) + output


@pytest.mark.parametrize("mode", DIRECT)
def test_direct_io_is_linked(loads, mode):
    load = loads(mode)
    if load.run.trace.files["filesystem_magic"].isin([BTRFS_MAGIC]).any() and not has_tracepoint("iomap_dio_rw_begin"):
        pytest.xfail("named limit: btrfs before 6.6 does not tell which request of several in an io_submit it works on")
    told = load.run.told_data()
    linked = load.linked()
    assert linked["bytes"].sum() >= 0.99 * sum(row.result for row in told)
    assert linked["bytes"].sum() <= sum(row.result for row in told)
    # The piece lies in the range of its operation, and was moved while that ran.
    assert (linked["offset"] >= linked["offset_io"]).all()
    assert (linked["offset"] + linked["bytes"] <= linked["offset_io"] + linked["result"]).all()
    assert (linked["start_ns"] >= linked["start_ns_io"]).all()
    assert (linked["start_ns"] + linked["duration_ns"] <= linked["start_ns_io"] + linked["duration_ns_io"]).all()


@pytest.mark.skipif(not has_type("backing_aio"), reason="before 6.8 overlays do that in a way that is not known here")
@pytest.mark.parametrize("mode", [mode for mode in DIRECT if "syscall" not in mode])
def test_direct_io_on_an_overlay_is_linked(tmp_path, mode):
    """Which hands it on to a file of the file system below, in a request of its own."""
    with loop_file_system("ext4", tmp_path) as below, overlay(below.place, {}) as place:
        load = record_load(LoopFileSystem("overlay", place, below.disk), mode, tmp_path / "t")
    linked, bytes_told = load.linked(), sum(row.result for row in load.run.told_data())
    assert 0.99 * bytes_told <= linked["bytes"].sum() <= bytes_told
    assert (linked["offset"] >= linked["offset_io"]).all()
    assert (linked["offset"] + linked["bytes"] <= linked["offset_io"] + linked["result"]).all()


def test_cold_random_reads_are_linked(loads):
    load = loads("cold-random")
    wanted = pages(*zip(*((row.offset, row.result) for row in load.run.told_data()), strict=True))
    linked = load.linked()
    assert len(wanted & pages(linked["offset"], linked["bytes"])) >= 0.99 * len(wanted)
    # Nothing is read ahead here, so that each piece overlaps the read that it is for.
    assert (linked["offset"] < linked["offset_io"] + linked["result"]).all()
    assert (linked["offset"] + linked["bytes"] > linked["offset_io"]).all()


def test_cold_sequential_reads_are_linked(loads):
    load = loads("cold-sequential")
    linked = load.linked()
    assert len(pages(linked["offset"], linked["bytes"])) * PAGE_BYTES >= 0.99 * FILE_BYTES
    # A read ahead goes beyond the read that asked for it, by no more than two windows.
    far = 2 * load.read_ahead_bytes
    assert (linked["offset"] < linked["offset_io"] + linked["asked_bytes"] + far).all()
    assert (linked["offset"] + linked["bytes"] > linked["offset_io"]).all()


@pytest.mark.parametrize("mode", ["write-fsync", "write-back"])
def test_write_back_is_linked_with_the_task_that_dirtied(loads, mode):
    load = loads(mode)
    told = load.run.told_data()
    dirtied = pages(*zip(*((row.offset, row.result) for row in told), strict=True))
    linked = load.linked()
    by_task = linked[linked["thread"] == told[0].thread]
    assert len(dirtied & pages(by_task["offset"], by_task["bytes"])) >= 0.95 * len(dirtied)
    assert set(linked["op"]) == {IoOp.WRITE}
    # The cause is the last operation that dirtied the stretch in which the piece begins or ends.
    first, last = linked["offset"] // STRETCH_BYTES, (linked["offset"] + linked["bytes"] - 1) // STRETCH_BYTES
    stretch = linked["offset_io"] // STRETCH_BYTES
    assert ((stretch >= first) & (stretch <= last)).all()


@pytest.mark.parametrize("mode", ["cold-random", "cold-sequential"])
def test_missed_bytes_agree_with_mincore(loads, mode):
    load = loads(mode)
    told = [(row.offset, row.result, row.missed) for row in load.run.told_data()]
    io = load.io.sort_values("start_ns")
    recorded = list(zip(io["offset"], io["result"], io["missed_bytes"], strict=True))
    if mode == "cold-random":
        assert recorded == told
        return
    half = len(told) // 2
    assert [row[:2] for row in recorded] == [row[:2] for row in told]
    first, second = (sum(int(row[2]) for row in part) for part in (recorded[:half], recorded[half:]))
    assert abs(first - FILE_BYTES) <= 0.01 * FILE_BYTES
    assert second == 0


@pytest.mark.parametrize("mode", [*DIRECT, "cold-random", "cold-sequential", "write-fsync", "write-back"])
def test_pieces_add_up_to_their_requests(loads, mode):
    """No piece is longer than its request, and those of one request do not overlap."""
    load = loads(mode)
    for _, pieces in load.pieces.groupby("block"):
        ordered = pieces.sort_values("sector")
        ends = ordered["sector"] + ordered["bytes"] // 512
        request = pieces.iloc[0]
        assert ordered["sector"].iloc[0] >= request["sector_block"]
        assert ends.iloc[-1] <= request["sector_block"] + request["bytes_block"] // 512
        assert (ordered["sector"].iloc[1:].to_numpy() >= ends.iloc[:-1].to_numpy()).all()

# SPDX-License-Identifier: Apache-2.0
"""--sync dsync and sync: every write is synchronous, as strace sees it, and as a device counts its flushes."""

import json

import pytest

import characterize
from characterize.layout import BlockFlag, BlockOp, Fileop, IoFlag
from flextrace.main import main
from tests.machines.block_device import loop_device
from tests.traces.made_trace import made_trace, read, write
from tests.truths.straced import needs_engine, needs_strace, op

pytestmark = needs_engine

PAGE = 4096
PLAIN, DSYNC, SYNC = 53, 7, 3  # writes of each kind
KINDS = {1: (PLAIN, 0), 2: (DSYNC, int(IoFlag.DSYNC)), 3: (SYNC, int(IoFlag.SYNC))}  # by file


def trace_of_files():
    io = [
        write(PAGE * at, PAGE, 0, 1, file=file, flags=flags)
        for file, (count, flags) in KINDS.items()
        for at in range(count)
    ]
    io += [read(0, PAGE, 0, 1, file=4)]
    for number, row in enumerate(io):
        row["start_ns"] = 10 * number
    fileops = [op(Fileop.FSYNC, 10_000), op(Fileop.FDATASYNC, 20_000)]
    files = [{"file": file, "size_bytes": PAGE * PLAIN} for file in (1, 2, 3, 4)]
    return made_trace(io, fileops=fileops, files=files)


@needs_strace
@pytest.mark.parametrize(
    ("choice", "flags", "changed"),
    [
        ("recorded", {1: "", 2: "O_DSYNC", 3: "O_SYNC"}, None),
        ("off", {1: "", 2: "", 3: ""}, DSYNC + SYNC),
        ("dsync", dict.fromkeys(KINDS, "O_DSYNC"), PLAIN + SYNC),
        ("sync", dict.fromkeys(KINDS, "O_SYNC"), PLAIN + DSYNC),
    ],
)
def test_every_write_goes_through_a_descriptor_of_that_kind(run_phase, choice, flags, changed):
    document, calls = run_phase(trace_of_files(), "%file,%desc", [f"--sync={choice}"])
    assert document["operations"]["io"]["done"] == PLAIN + DSYNC + SYNC + 1
    assert document["engine"]["sync"] == choice
    assert document["engine"].get("sync_changed_writes") == changed
    opened = {}
    for call in calls:
        if call.name == "openat" and '"f0' in call.arguments and call.result >= 0:
            opened[call.result] = call.arguments
        elif call.name == "close":
            opened.pop(int(call.arguments.split("<")[0]), None)
        elif call.name == "pwrite64":
            written = opened[int(call.arguments.split("<")[0])]
            wanted = flags[int(call.file.removeprefix("f"))]
            assert [
                flag for flag in ("O_SYNC", "O_DSYNC") if flag in written.replace("|", " ").split(", ")[2].split()
            ] == [*([wanted] if wanted else [])]
    syncs = sum(call.name in ("fsync", "fdatasync") and call.file == "f00000001" for call in calls)
    assert syncs >= (0 if choice == "off" else 2)
    assert document["operations"]["fileop"]["done"] == (0 if choice == "off" else 2)


@pytest.mark.root
@pytest.mark.parametrize("engine", ["sync", "io_uring"])
def test_a_device_flushes_for_every_write(tmp_path, engine, capsys):
    """A loop device has no FUA. One request at a time, as the kernel joins flushes; for a call it makes two of each."""
    size = 16 << 20
    plain, fua, reads = 37, 5, 11
    kinds = [(BlockOp.WRITE, 0)] * plain + [(BlockOp.WRITE, int(BlockFlag.FUA))] * fua + [(BlockOp.READ, 0)] * reads
    rows = [
        {"op": kind, "flags": flags, "start_ns": 1000 * at, "duration_ns": 10, "sector": 8 * at, "bytes": PAGE}
        for at, (kind, flags) in enumerate(kinds, start=1)
    ]
    trace = characterize.write(made_trace(blocks=rows), tmp_path / "blocks.iotrace")
    with loop_device(tmp_path / "disk", size) as disk:
        arguments = ["replay", str(trace), "--device", disk.path, "--write", "--confirm", str(size), "--engine", engine]
        flushes = {}
        for choice, changed in (("recorded", None), ("off", fua), ("dsync", plain), ("sync", plain + fua)):
            before = disk.statistics()
            assert main([*arguments, "--sync", choice, "--format", "json"]) == 0
            document = json.loads(capsys.readouterr().out)
            after = disk.statistics()
            assert document["requests"] == {"read": reads, "write": plain + fua}
            assert document["engine"].get("sync_changed_writes") == changed
            flushes[choice] = after["flushes"] - before["flushes"]
        # Without any synchronous write there are those of a beginning and an end.
        each = {"sync": 2, "io_uring": 1}[engine]
        assert flushes["off"] < fua
        assert flushes["recorded"] - flushes["off"] == each * fua
        assert flushes["dsync"] == flushes["sync"] == flushes["off"] + each * (plain + fua)


def test_the_summary_says_what_was_changed(tmp_path, capsys):
    trace = characterize.write(trace_of_files(), tmp_path / "t.iotrace")
    assert main(["replay", str(trace), "--directory", str(tmp_path / "image"), "--sync", "dsync"]) == 0
    assert f", sync dsync ({PLAIN + SYNC} writes changed)" in capsys.readouterr().out

# SPDX-License-Identifier: Apache-2.0
"""The verb replay onto a device, from block requests to block requests: what was recorded of it equals the original."""

import errno
import json
import os
from collections import Counter

import numpy as np
import pytest

import characterize
from characterize.layout import BlockFlag, BlockOp, FileType, HeaderFlag, RecordKind
from flextrace.main import main
from tests.machines.block_device import loop_device, partition
from tests.traces.made_trace import made_trace, read, write
from tests.traces.overlapping_requests import COUNT, SIZE, overlapping_requests
from tests.truths.straced import needs_engine
from tests.truths.told import RECORDER, ROOT, run_recorder

pytestmark = [needs_engine, pytest.mark.root, pytest.mark.parallel]

PAGE = 4096


@pytest.fixture
def disk(tmp_path):
    with loop_device(tmp_path / "disk", SIZE) as device:
        yield device


@pytest.fixture
def trace(tmp_path):
    return characterize.write(made_trace(blocks=overlapping_requests()), tmp_path / "blocks.iotrace")


def replayed(capsys, *arguments, status=0):
    assert main(["replay", *map(str, arguments), "--format", "json"]) == status
    return json.loads(capsys.readouterr().out)


def test_only_reads_without_write(trace, disk, capsys):
    document = replayed(capsys, trace, "--device", disk.path)
    reads = sum(row["op"] == BlockOp.READ for row in overlapping_requests())
    assert document["requests"] == {"read": reads, "write": 0}
    assert document["skipped_reasons"] == {"writes_off": COUNT - reads}
    assert "directory" not in document
    assert document["device_trace"]["layer"] == "block"
    assert document["threads"] == document["device_trace"]["lanes"] == 5
    assert document["trustworthy"]
    assert main(["replay", str(trace), "--device", disk.path]) == 0
    out = capsys.readouterr().out
    assert f"on {disk.path}" in out
    assert "layer block of 8:0 in 5 lanes, fit exact: 0 moved, 0 aligned" in out


def test_an_altered_trace_of_block_requests_is_replayed(trace, disk, tmp_path, capsys):
    altered = tmp_path / "altered.iotrace"
    assert main(["alter", str(trace), "--read-frac", "1", "--process-num", "9", "-o", str(altered)]) == 0
    capsys.readouterr()
    document = replayed(capsys, altered, "--device", disk.path)
    assert document["requests"] == {"read": COUNT, "write": 0}
    assert document["device_trace"]["lanes"] == 9
    assert document["order"] == "recorded"


def data_in(image):
    """Bytes of a sparse file that somebody wrote, by page."""
    pages, at = set(), 0
    with image.open("rb") as stream:
        while at < SIZE:
            try:
                first = os.lseek(stream.fileno(), at, os.SEEK_DATA)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                break
            at = os.lseek(stream.fileno(), first, os.SEEK_HOLE)
            pages.update(range(first // PAGE, -(-at // PAGE)))
    return pages


def test_copies_of_block_requests_lie_end_to_end_on_one_device(disk, tmp_path, capsys):
    rows = overlapping_requests(SIZE // 2)
    trace = characterize.write(made_trace(blocks=rows), tmp_path / "blocks.iotrace")
    both = tmp_path / "both.iotrace"
    assert main(["clone", str(trace), "--copies", "2", "-o", str(both)]) == 0
    assert main(["replay", str(both), "--device", disk.path]) == 2
    assert "--source all" in capsys.readouterr().err
    document = replayed(capsys, both, "--device", disk.path, "--source", "all", "--write", "--confirm", SIZE)
    assert document["operations"]["done"] == 2 * COUNT
    assert document["device_trace"]["lanes"] == 10
    assert document["device_trace"]["source"] == "2 devices"
    end = max(512 * row["sector"] + row["bytes"] for row in rows)
    written = [(512 * row["sector"], row["bytes"]) for row in rows if row["op"] == BlockOp.WRITE]
    pages = {page for at, size in written for page in range(at // PAGE, (at + size) // PAGE)}
    assert data_in(tmp_path / "disk") == pages | {page + end // PAGE for page in pages}


@pytest.mark.skipif(not RECORDER.exists(), reason="build/flextrace-record is not built")
def test_a_recording_of_the_replay_has_the_same_requests_and_no_greater_depth(trace, disk, tmp_path):
    """Neither are two requests swapped that did not overlap."""
    again = tmp_path / "again.iotrace"
    command = ["-m", "flextrace", "replay", trace, "--device", disk.path, "--write", "--confirm", SIZE]
    done = run_recorder(again, ROOT / ".venv/bin/python", *map(str, command), cwd=ROOT)
    assert done.returncode == 0, done.stderr
    blocks = characterize.open(again).arrays[RecordKind.BLOCK]
    blocks = blocks[(blocks["device"] == disk.number) & np.isin(blocks["op"], (BlockOp.READ, BlockOp.WRITE))]
    # Looking for signatures reads as well, by the page cache, before the first direct request.
    original = {(row["op"], row["sector"], row["bytes"]): at for at, row in enumerate(overlapping_requests())}
    found = [(int(row["op"]), int(row["sector"]), int(row["bytes"])) for row in blocks]
    blocks = blocks[[key in original for key in found]]
    numbers = np.array([original[key] for key in found if key in original])
    assert Counter(numbers.tolist()) == Counter(range(COUNT))

    rows = overlapping_requests()
    start, end = (np.empty(COUNT, np.int64) for _ in range(2))
    start[numbers], end[numbers] = blocks["start_ns"], blocks["start_ns"] + blocks["duration_ns"]
    first = np.array([row["start_ns"] for row in rows])
    last = first + [row["duration_ns"] for row in rows]
    for request in range(COUNT):
        before = last <= first[request]
        assert (end[before] <= start[request]).all()
    moments = np.sort(start)[:, None]
    assert ((start <= moments) & (end > moments)).sum(axis=1).max() <= 5


@pytest.mark.parametrize("fit", ["wrap", "scale"])
def test_a_larger_device_fits_by_choice(disk, tmp_path, capsys, fit):
    trace = characterize.write(made_trace(blocks=overlapping_requests(8 * SIZE)), tmp_path / "large.iotrace")
    arguments = (trace, "--device", disk.path)
    assert main(["replay", *map(str, arguments)]) == 2
    assert "--fit wrap or scale" in capsys.readouterr().err
    document = replayed(capsys, *arguments, "--write", "--confirm", SIZE, "--fit", fit)
    assert document["operations"]["done"] == COUNT
    assert document["device_trace"]["moved"] > COUNT // 2


def test_requests_without_durations(disk, tmp_path, capsys):
    """As public block traces have them."""
    rows = [row | {"duration_ns": 0} for row in overlapping_requests()]
    trace = characterize.write(made_trace(blocks=rows), tmp_path / "t.iotrace")
    assert main(["replay", str(trace), "--device", disk.path]) == 0
    assert "--lanes N" in capsys.readouterr().err
    document = replayed(capsys, trace, "--device", disk.path, "--lanes", 7)
    assert (document["threads"], document["order"]) == (7, "thread")
    assert not any("--lanes" in warning for warning in document["warnings"])


def test_a_recording_of_programs_on_a_raw_device(disk, tmp_path, capsys):
    files = [{"file": 1, "type": FileType.BLOCK_DEVICE, "size_bytes": SIZE}]
    io = [read(8192, 4096, 1), write(100, 100, 5), read(0, 4096, 9)]
    trace = characterize.write(made_trace(io, files=files), tmp_path / "raw.iotrace")
    document = replayed(capsys, trace, "--device", disk.path)
    assert document["device_trace"]["layer"] == "vfs"
    assert document["requests"] == {"read": 2, "write": 0}
    document = replayed(capsys, trace, "--device", disk.path, "--directory", tmp_path / "image")
    assert "device_trace" not in document
    assert document["requests"] == {"read": 2, "write": 0}


def test_a_synthetic_trace_on_a_raw_device(disk, tmp_path, capsys):
    io = [read(4096 * at, 4096, at, 0, file=1 + at % 2, thread=1 + at % 2) for at in range(20)]
    files = [{"file": file, "size_bytes": 1 << 20} for file in (1, 2)]
    trace = characterize.write(made_trace(io, files=files, flags=HeaderFlag.UNTIMED), tmp_path / "s.iotrace")
    document = replayed(capsys, trace, "--device", disk.path)
    assert document["requests"] == {"read": 20, "write": 0}
    assert document["order"] == "thread"


def test_loss_of_the_recording_is_still_told(disk, tmp_path, capsys):
    made = made_trace(blocks=overlapping_requests(), lost={RecordKind.BLOCK: 5}, flags=HeaderFlag.LOST)
    trace = characterize.write(made, tmp_path / "lost.iotrace")
    assert any(
        "lost while recording" in warning for warning in replayed(capsys, trace, "--device", disk.path)["warnings"]
    )


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ([], "--device DEV"),
        (["--directory", "D", "--image", "D"], "not allowed with"),
        (["--directory", "D", "--write"], "give --device"),
        (["--directory", "D", "--lanes", "5"], "give --device"),
        (["--device", "DEV", "--write"], "--confirm"),
        (["--device", "DEV", "--confirm", "5"], "--write"),
        (["--device", "DEV", "--lanes", "0"], "from 1"),
        (["--device", "DEV", "--lanes", "x"], "from 1"),
        (["--device", "DEV", "--fit", "squeeze"], "squeeze"),
        (["--device", "DEV", "--memory", "1G"], "page cache"),
        (["--device", "DEV", "--directory", "D", "--fit", "wrap"], "leave --fit"),
        (["--device", "DEV", "--source", "9:9"], "no requests of device 9:9"),
        (["--device", "DEV", "--source", "all", "--record"], "one recorded device"),
        (["--device", "FILE"], "not a block device"),
        (["--device", "DEV", "--cache", "warm"], "are for files"),
        (["--device", "DEV", "--layout", "recorded"], "are for files"),
        (["--device", "DEV", "--force-space"], "are for files"),
    ],
)
def test_wrong_usage(trace, disk, capsys, options, word):
    image = trace.parent / "image"
    names = {"D": str(image), "DEV": disk.path, "FILE": str(trace)}
    try:
        status = main(["replay", str(trace), *[names.get(option, option) for option in options]])
    except SystemExit as stop:
        status = stop.code
    assert status == 2
    assert word in capsys.readouterr().err
    assert not image.exists()


def test_a_device_that_is_missing(trace, tmp_path, capsys):
    assert main(["replay", str(trace), "--device", str(tmp_path / "missing")]) == 1
    assert "No such file" in capsys.readouterr().err


def test_stacked_requests_only_by_choice(disk, tmp_path, capsys):
    rows = overlapping_requests()
    rows += [row | {"device": 253 << 20, "flags": BlockFlag.STACKED} for row in rows]
    trace = characterize.write(made_trace(blocks=rows), tmp_path / "dm.iotrace")
    for options, source in (([], "8:0"), (["--source", "253:0"], "253:0")):
        document = replayed(capsys, trace, "--device", disk.path, *options)
        assert document["device_trace"]["source"] == source
        assert document["operations"]["records"] == COUNT
        assert ["--source 253:0" in warning for warning in document["warnings"]] == ([] if options else [True])


def test_a_device_that_is_too_small_for_the_disk_below_is_told_what_else_the_trace_has(disk, tmp_path, capsys):
    """As recorded on a loop device: its file lies far behind on the disk, of which there are the same requests."""
    loop = [row | {"device": 7 << 20, "flags": BlockFlag.STACKED} for row in overlapping_requests()]
    below = [row | {"sector": row["sector"] + (1 << 30)} for row in overlapping_requests()]
    trace = characterize.write(made_trace(blocks=loop + below), tmp_path / "loop.iotrace")
    assert main(["replay", str(trace), "--device", disk.path]) == 2
    told = capsys.readouterr().err
    assert "requests of 8:0 reach up to byte" in told
    assert "--source 7:0, on top of others" in told
    document = replayed(capsys, trace, "--device", disk.path, "--source", "7:0")
    assert document["operations"]["records"] == COUNT


def test_a_partition_is_a_device_of_its_own(trace, disk, tmp_path, capsys):
    """Of half the size: what was recorded beyond it is wrapped, and the other half stays as it is."""
    with partition(disk, SIZE // 1024) as part:
        document = replayed(capsys, trace, "--device", part, "--fit", "wrap", "--write", "--confirm", SIZE // 2)
    assert document["device"]["size_bytes"] == SIZE // 2
    assert document["device_trace"]["moved"] > COUNT // 4
    assert document["operations"]["done"] == COUNT
    with (tmp_path / "disk").open("rb") as stream:
        assert os.lseek(stream.fileno(), 0, os.SEEK_DATA) >= SIZE // 2


def test_requests_of_sectors_on_a_device_of_larger_blocks(tmp_path, capsys):
    rows = [row | {"sector": row["sector"] + 3, "bytes": 512} for row in overlapping_requests()]
    trace = characterize.write(made_trace(blocks=rows), tmp_path / "t.iotrace")
    with loop_device(tmp_path / "large-blocks", SIZE, "--sector-size", "4096") as disk:
        document = replayed(capsys, trace, "--device", disk.path, "--write", "--confirm", SIZE)
    assert document["device"]["logical_block_bytes"] == 4096
    assert document["operations"]["done"] == document["device_trace"]["aligned"] == COUNT
    assert sum(document["bytes"].values()) == 4096 * COUNT

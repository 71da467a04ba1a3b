# SPDX-License-Identifier: Apache-2.0
"""Direct I/O on storage with sectors of 4096 bytes, told by strace and by what the kernel refuses there."""

import errno
import json
import mmap
import os
import re
import subprocess

import pytest

import characterize
from characterize.layout import FileType, IoFlag
from tests.machines.block_device import loop_device, mounted
from tests.machines.loop_file_system import IMAGE_BYTES
from tests.traces.made_trace import made_trace, read, write
from tests.truths.straced import DATA, ENGINE, needs_engine, needs_strace, strace_run_phase

pytestmark = [needs_engine, needs_strace, pytest.mark.root, pytest.mark.parallel]

PAGE = 4096
WHOLE = [(0, PAGE), (2 * PAGE, 8 * PAGE)]
PARTS = [(512, PAGE), (PAGE, 512), (3 * PAGE + 1024, 1024)]  # whole sectors of 512 bytes
WARNING = "{} requests have no whole sectors of 4096 bytes"


def requests(**fields):
    """A read and a write of every place."""
    places = WHOLE + PARTS + WHOLE + PARTS
    return [(read, write)[at % 2](*place, 10 * at, **fields) for at, place in enumerate(places, 1)]


def refuses(path, offset, size):
    """Whether the kernel refuses a direct read."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        os.preadv(descriptor, [memoryview(mmap.mmap(-1, 16 * PAGE))[:size]], offset)
    except OSError as error:
        return error.errno == errno.EINVAL
    finally:
        os.close(descriptor)
    return False


def direct_calls(calls):
    """``(offset, size)`` of the requests, by whether they went to a descriptor with O_DIRECT."""
    direct, found = {}, {True: [], False: []}
    for call in calls:
        if call.name == "openat" and "f00000001" in call.arguments:
            direct[call.result] = "O_DIRECT" in call.arguments
        if call.name in DATA.split(",") and call.file == "f00000001":
            size, offset = call.numbers
            assert call.result == size
            found[direct[int(re.match(r"\d+", call.arguments)[0])]].append((offset, size))
    return found


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
@pytest.mark.parametrize("sector", [512, PAGE])
def test_what_has_no_whole_sectors_goes_through_the_page_cache(tmp_path, kind, sector):
    trace = made_trace(requests(), files=[{"file": 1, "size_bytes": 16 * PAGE}])
    recorded = made_trace(requests(flags=int(IoFlag.DIRECT)), files=[{"file": 1, "size_bytes": 16 * PAGE}])
    options = ("--sector-size", str(sector))
    with (
        loop_device(tmp_path / "disk", IMAGE_BYTES, *options) as disk,
        mounted(kind, disk, tmp_path / "there") as place,
    ):
        (place / "probe").write_bytes(bytes(16 * PAGE))
        assert [refuses(place / "probe", *part) for part in PARTS] == [sector > 512] * len(PARTS)
        on, calls = strace_run_phase(place, trace, f"%file,{DATA}", ["--direct=on"])
        as_recorded, calls_as_recorded = strace_run_phase(
            place, recorded, f"%file,{DATA}", statuses=(3 if sector > 512 else 0,)
        )
    places = [(row["offset"], row["result"]) for row in requests()]
    parts = [place for place in places if place in PARTS] if sector > 512 else []
    for found in (direct_calls(calls), direct_calls(calls_as_recorded)):
        assert found == {True: [place for place in places if place not in parts], False: parts}
    for document in (on, as_recorded):
        assert document["operations"]["done"] == len(places)
        told = [warning for warning in document["warnings"] if warning.startswith(WARNING.format(len(parts)))]
        assert len(told) == (1 if parts else 0)
    assert len(as_recorded["reasons"]) == (1 if parts else 0)


def test_what_was_refused_when_it_was_recorded_is_refused_again(tmp_path):
    io = [read(512, -errno.EINVAL, 10, asked_bytes=512, flags=int(IoFlag.DIRECT))]
    trace = made_trace(io, files=[{"file": 1, "size_bytes": PAGE}])
    with (
        loop_device(tmp_path / "disk", IMAGE_BYTES, "--sector-size", str(PAGE)) as disk,
        mounted("ext4", disk, tmp_path / "there") as place,
    ):
        document, calls = strace_run_phase(place, trace)
    assert [call.result for call in calls if call.name == "pread64" and call.file == "f00000001"] == [-1]
    assert document["operations"]["done"] == 1
    assert not document["mismatches"]


def test_a_device_with_large_sectors(tmp_path):
    """What a program did on a raw device comes as it was, but for what this one cannot do."""
    io = [read(*place, 10 * at, flags=int(IoFlag.DIRECT)) for at, place in enumerate(WHOLE + PARTS)]
    size = 64 << 20
    made = made_trace(io, files=[{"file": 1, "type": FileType.BLOCK_DEVICE, "size_bytes": size}])
    path = characterize.write(made, tmp_path / "t.iotrace")
    with loop_device(tmp_path / "disk", size, "--sector-size", str(PAGE)) as disk:
        assert [refuses(disk.path, *part) for part in PARTS] == [True] * len(PARTS)
        done = subprocess.run([ENGINE, path, f"--device={disk.path}"], capture_output=True, text=True, check=False)
    document = json.loads(done.stdout)
    assert document["operations"]["done"] == len(io)
    assert [warning for warning in document["warnings"] if warning.startswith(WARNING.format(len(PARTS)))]
    assert done.returncode == 3
    assert len(document["reasons"]) == 1

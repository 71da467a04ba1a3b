# SPDX-License-Identifier: Apache-2.0
"""More files than the recorder has room for at once: each that data was moved in is told all the same, or counted."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import characterize
from characterize.layout import IoOp, RecordKind
from tests.machines.loop_file_system import loop_file_system
from tests.machines.overlay import overlay
from tests.truths.page_cache import cache_only
from tests.truths.told import PROGRAMS, RECORDER, run_recorder, wait_for_recording

FILES = 300
OVERLAY_MAGIC = 0x794C7630  # whose files can take the place of a second one, for the inode below
RING_BYTES = 256 << 10  # holds 58 files with their paths, and the calls of a test

pytestmark = pytest.mark.records

OPEN_ALL = """
import os, sys, time
files = [os.open(f"{sys.argv[1]}/{number}", os.O_RDWR | os.O_CREAT) for number in range(int(sys.argv[2]))]
"""

# While the recorder stands still, so that its ring overflows.
OPEN_ALL_UNSEEN = f"""
import os, signal
os.kill(os.getppid(), signal.SIGSTOP)
{OPEN_ALL}
os.kill(os.getppid(), signal.SIGCONT)
"""


def written(trace: characterize.Trace, directory: Path) -> set[str]:
    """Names of the files in a directory that were written, by the records of the writes and of the files."""
    writes = trace.io[(trace.io["op"] == IoOp.WRITE) & (trace.io["asked_bytes"] == len("seven.."))]
    paths = [Path(trace.paths.get(file, "?")) for file in writes["file"]]
    return {path.name if path.parent == directory else f"{path}" for path in paths}


def test_files_that_were_open_before_are_told_however_small_the_ring(tmp_path):
    script = f"{OPEN_ALL}print(flush=True)\ninput()\nfor file in files: os.write(file, b'seven..')\n"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(["python3", "-c", script, tmp_path, str(FILES)], text=True, **pipes) as target:
        target.stdout.readline()
        command = [RECORDER, "-o", tmp_path / "t", "--ring-bytes", str(RING_BYTES), "-p", str(target.pid)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as recorder:
            wait_for_recording(recorder.stderr)
            target.communicate("\n", timeout=120)
            assert recorder.wait(timeout=120) == 0, recorder.stderr.read()
    trace = characterize.open(tmp_path / "t")
    assert not trace.header.lost
    assert written(trace, tmp_path) == {str(number) for number in range(FILES)}


def test_a_file_that_found_no_room_is_told_when_it_is_used_again(tmp_path):
    """All are opened at once, and then one after the other is written, four times: a drain may be late."""
    script = OPEN_ALL_UNSEEN + "for file in 4 * files: os.write(file, b'seven..'); time.sleep(0.002)\n"
    options = ("--ring-bytes", "64K", "--layer", "vfs")  # holds 14 files
    done = run_recorder(tmp_path / "t", "python3", "-c", script, tmp_path, str(FILES), options=options)
    trace = characterize.open(tmp_path / "t")
    writes = trace.io[trace.io["asked_bytes"] == len("seven..")]
    late = (trace.files["time_ns"] > writes["start_ns"].min()).sum()
    # What was sent late is not lost; what Python itself opens once may be.
    assert trace.header.lost.get(RecordKind.FILE, 0) < late
    assert done.returncode == (3 if trace.header.lost else 0)
    assert written(trace, tmp_path) == {str(number) for number in range(FILES)}
    assert trace.files["file"].is_unique


def test_files_that_are_never_told_are_lost_and_counted(tmp_path):
    """All are opened at once, and never used again."""
    options = ("--ring-bytes", "64K", "--layer", "vfs")
    script = f"{OPEN_ALL_UNSEEN}os._exit(0)"
    run_recorder(tmp_path / "t", "python3", "-c", script, tmp_path, str(FILES), options=options)
    trace = characterize.open(tmp_path / "t")
    told = {Path(path).name for path in trace.paths.values() if Path(path).parent == tmp_path}
    lost = trace.header.lost.get(RecordKind.FILE, 0)
    assert lost
    assert len(told) + lost >= FILES
    everything = len(trace.files[trace.files["inode"] != 0]) + lost
    assert everything - FILES < 200  # what Python itself needs


def test_what_is_done_with_more_files_than_are_told_apart_is_lost_and_counted(tmp_path):
    """Each file is opened, written and closed."""
    most = 200  # with those that Python itself needs
    script = OPEN_ALL + "for file in files: os.write(file, b'seven..'); os.close(file)\n"
    options = ("--max-files", str(most), "--layer", "vfs")
    done = run_recorder(tmp_path / "t", "python3", "-c", script, tmp_path, str(FILES), options=options)
    assert done.returncode == 3
    assert f"give a larger --max-files than {most}" in done.stderr
    assert "--ring-bytes" not in done.stderr
    trace = characterize.open(tmp_path / "t")
    told = trace.files[trace.files["inode"] != 0]
    twice = (told["filesystem_magic"] == OVERLAY_MAGIC).sum()
    assert most - twice <= len(told) <= most
    known = len(written(trace, tmp_path))
    assert 0 < known < most
    totals = trace.header.metadata["totals"]["write"]["syscall"]
    assert totals["bytes"] == FILES * len("seven..")
    lost = dict(trace.header.lost)
    if twice:
        lost.pop(RecordKind.FILE, None)  # those below
    assert lost == {RecordKind.IO: FILES - known, RecordKind.FILEOP: 2 * (FILES - known)}


USE_ONE = """
import mmap, os, sys
file = os.open(sys.argv[1], os.O_RDONLY)
if sys.argv[2] == "read": os.pread(file, 4096, 0)
else: mmap.mmap(file, 0, prot=mmap.PROT_READ)[0]
"""


@pytest.mark.parametrize("use", ["read", "map"])
def test_a_file_below_an_overlay_is_counted_that_finds_no_room_behind_that_of_the_overlay(tmp_path, use):
    """Its pages are those that are read and mapped."""
    options = ("--layer", "vfs")
    with loop_file_system("ext4", tmp_path) as system, overlay(system.place, {"a": bytes(13 * 4096)}) as place:
        command = ("python3", "-I", "-c", USE_ONE, place / "a", use)
        cache_only(system.place / "lower" / "a", [])
        done = run_recorder(tmp_path / "all", *command, options=options)
        assert done.returncode == 0, done.stderr
        told = characterize.open(tmp_path / "all").files
        told = told[told["inode"] != 0]
        if (told["filesystem_magic"] == OVERLAY_MAGIC).sum() > 1:
            pytest.skip("Python lies on an overlay, too")
        cache_only(system.place / "lower" / "a", [])
        done = run_recorder(tmp_path / "t", *command, options=(*options, "--max-files", str(len(told))))
    assert done.returncode == 3, done.stderr
    assert f"give a larger --max-files than {len(told)}" in done.stderr
    assert set(characterize.open(tmp_path / "t").header.lost) == {RecordKind.FILE}


def test_files_beyond_those_that_can_wait_to_be_looked_at_are_counted():
    room, more = 1 << 16, 7
    command = [PROGRAMS / "waiting_files", str(room + more)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(room), str(more)]

# SPDX-License-Identifier: Apache-2.0
"""What processes had open and mapped before they were recorded, or have from others that are not recorded."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import pandas as pd
import pytest

import characterize
from characterize.layout import FileFlag, IoOp, Source
from tests.truths.told import RECORDER, run_recorder, wait_for_recording

pytest_plugins = ["tests.machines.own_group"]
pytestmark = pytest.mark.records
ARRIVAL_SEEN_S = 1  # the recorder is woken for them

COMES_LATER = """
import mmap, os, sys
place = sys.argv[1]
made = os.open(place + "/made", os.O_RDWR | os.O_CREAT)
os.write(made, bytes(12345))
with open(place + "/mapped", "r+b") as file: memory = mmap.mmap(file.fileno(), 0)
print("ready", flush=True)
sys.stdin.readline()
os.pread(made, 777, 0)
memory[0] = 1
after = os.open(place + "/after", os.O_RDWR | os.O_CREAT)
os.write(after, bytes(7))
print("done", flush=True)
sys.stdin.readline()
"""


def files_by_path(trace: characterize.Trace) -> pd.DataFrame:
    return trace.files[trace.files["path"] != ""].set_index("path")


def test_what_a_process_has_that_comes_later(tmp_path, group):
    (tmp_path / "mapped").write_bytes(bytes(13 * 4096))
    os.sync()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    recorder = subprocess.Popen(
        ["env", "--default-signal=INT", RECORDER, "-o", tmp_path / "t", "--in-cgroup", group],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_for_recording(recorder.stderr)
        with subprocess.Popen(["python3", "-I", "-c", COMES_LATER, tmp_path], **pipes) as process:
            assert process.stdout.readline() == "ready\n"
            (group / "cgroup.procs").write_text(str(process.pid))
            time.sleep(ARRIVAL_SEEN_S)
            process.stdin.write("go\n")
            process.stdin.flush()
            assert process.stdout.readline() == "done\n"
            recorder.send_signal(signal.SIGINT)
            assert recorder.wait(timeout=120) == 0
            process.communicate("end\n", timeout=120)
    finally:
        recorder.kill()
        recorder.wait()
    trace = characterize.open(tmp_path / "t")
    files = files_by_path(trace)
    assert not files.loc[f"{tmp_path}/made", "flags"] & int(FileFlag.CREATED)
    assert files.loc[f"{tmp_path}/made", "size_bytes"] == 12345
    assert files.loc[f"{tmp_path}/after", "flags"] & int(FileFlag.CREATED)
    paths = trace.io["file"].map(trace.paths)
    stores = trace.io[(paths == f"{tmp_path}/mapped") & (trace.io["op"] == IoOp.WRITE)]
    assert set(stores["source"]) == {Source.MMAP}
    assert list(trace.io.loc[paths == f"{tmp_path}/made", "result"]) == [777]


def test_a_file_that_somebody_else_has_made(tmp_path):
    """And hands over with what it has written."""
    script = f"""
import os, socket
connection = socket.socket(socket.AF_UNIX)
connection.connect("{tmp_path}/socket")
_, (file,), _, _ = socket.recv_fds(connection, 1, 1)
os.pread(file, 777, 0)
os.write(os.open("{tmp_path}/own", os.O_RDWR | os.O_CREAT), bytes(5))
"""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"{tmp_path}/socket")
        listening.listen()
        made = os.open(tmp_path / "made", os.O_RDWR | os.O_CREAT)
        os.write(made, bytes(12345))
        child = os.fork()
        if not child:
            connection, _ = listening.accept()
            socket.send_fds(connection, [b"x"], [made])
            os._exit(0)
        os.close(made)
        done = run_recorder(tmp_path / "t", "python3", "-I", "-c", script)
        os.waitpid(child, 0)
    assert done.returncode == 0, done.stderr
    files = files_by_path(characterize.open(tmp_path / "t"))
    assert files.loc[f"{tmp_path}/made", "flags"] == 0
    assert files.loc[f"{tmp_path}/made", "size_bytes"] == 12345
    assert files.loc[f"{tmp_path}/own", "flags"] == int(FileFlag.CREATED)


# QEMU's emulated processors run into an int3 of before when the kernel switches a tracepoint on that another process
# goes through all the time. Linux 6.12 panics then (Oops int3 in filemap_map_pages), in some of these 20 recordings.
@pytest.mark.skipif("virtme_hostname" in Path("/proc/cmdline").read_text(), reason="a VM without KVM panics")
def test_a_process_that_is_being_made_when_recording_begins_is_not_lost(tmp_path):
    process = subprocess.Popen(["sh", "-c", "while :; do (:); done"])
    try:
        for _ in range(20):  # about one in seven meets one being made
            options = ["--max-time", "0.05", "-p", str(process.pid)]
            command = [RECORDER, "-q", "--force", "--layer=vfs", "-o", tmp_path / "t", *options]
            done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
            assert done.returncode == 0, done.stderr
            assert not characterize.open(tmp_path / "t").header.lost
    finally:
        process.kill()
        process.wait()

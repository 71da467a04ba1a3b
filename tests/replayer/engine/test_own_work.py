# SPDX-License-Identifier: Apache-2.0
"""What the engine does for itself, which strace makes slow, is a part of think times and comes not on top of them."""

import json
import subprocess

import characterize
from characterize.layout import FileFlag, Fileop, IoFlag
from tests.traces.made_trace import made_trace, read, write
from tests.truths.straced import ENGINE, needs_engine, needs_strace, op

pytestmark = [needs_engine, needs_strace]

PAGE = 4096
COUNT = 53
THINK_NS, SLOW_US = 20_000_000, 15_000
FEW_DESCRIPTORS = ["sh", "-c", 'ulimit -n 79; exec "$@"', "sh"]
"""16 are for files (replayer/engine/descriptors.c); those that have no name any more may take the others as well."""


def elapsed_s(place, trace, calls, *options, before=()):
    """Of a replay whose files are there, each of these system calls of which takes SLOW_US longer."""
    path = characterize.write(trace, place / "t.iotrace")
    command = [ENGINE, path, f"--directory={place / 'image'}"]
    subprocess.run([*command, "--phase=prepare", "--keep-image"], check=True, capture_output=True)
    slow = ["-e", f"trace={calls}", "-e", f"inject={calls}:delay_enter={SLOW_US}"]
    words = [*before, "strace", "-f", "-o", place / "log", *slow, *command, "--phase=run", "--timing=think", *options]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    document = json.loads(done.stdout)
    assert document["operations"]["done"] == document["operations"]["records"]
    return document["elapsed_s"]


def is_what_was_thought(seconds):
    return (COUNT - 1) * 0.0199 < seconds < (COUNT - 1) * 0.025


def test_before_a_write(tmp_path):
    """It looks at the file's times, as somebody did before the recorded write."""
    flags = int(IoFlag.CTIME_QUERIED)
    io = [write(0, PAGE, 1000 + THINK_NS * at, flags=flags) for at in range(COUNT)]
    trace = made_trace(io, files=[{"file": 1, "size_bytes": PAGE}])
    assert is_what_was_thought(elapsed_s(tmp_path, trace, "fstat,newfstatat"))


def test_behind_an_open(tmp_path):
    """Of more files than it may have descriptors, it closes others."""
    fileops = [op(Fileop.OPEN, 1000 + THINK_NS * at, file=1 + at, flags=IoFlag.CREATED) for at in range(COUNT)]
    files = [{"file": 1 + at, "flags": FileFlag.CREATED} for at in range(COUNT)]
    trace = made_trace(fileops=fileops, files=files)
    assert is_what_was_thought(elapsed_s(tmp_path, trace, "close", before=FEW_DESCRIPTORS))


def test_before_a_file_loses_its_name(tmp_path):
    """It opens the file, which is read afterwards: of more files than it may have had descriptors for."""
    starts = [1000 + THINK_NS * at for at in range(COUNT)]
    fileops = [op(Fileop.UNLINK, start, file=1 + at) for at, start in enumerate(starts)]
    io = [read(0, PAGE, start + THINK_NS // 2, file=1 + at) for at, start in enumerate(starts)]
    trace = made_trace(io, fileops=fileops, files=[{"file": 1 + at, "size_bytes": PAGE} for at in range(COUNT)])
    assert is_what_was_thought(elapsed_s(tmp_path, trace, "openat", "--cache=keep", before=FEW_DESCRIPTORS))

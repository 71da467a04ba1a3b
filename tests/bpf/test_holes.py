# SPDX-License-Identifier: Apache-2.0
"""Reads of what no device has are no misses: holes, space that was never written, and files in memory."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import characterize
from characterize.layout import IoOp
from tests.machines.block_device import loop_device, mounted, run
from tests.machines.kernel import has_tracepoint
from tests.truths.page_cache import cache_only
from tests.truths.told import run_recorder

FILE_BYTES = 64 << 20
WRITTEN_BYTES = 23 << 20  # of the one that is written in part
READ = ("dd", "of=/dev/null", "bs=128K")

pytestmark = [pytest.mark.records, pytest.mark.parallel]

SENDFILE = """
import os, sys
source, target = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT), os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT)
while os.sendfile(target, source, None, 1 << 20): pass
"""


def read_and_missed(trace_path: Path, file: Path, *command: str | Path) -> tuple[int, int]:
    """Bytes of a file that a command read, and that came from no cache, by its recording."""
    done = run_recorder(trace_path, *command)
    assert done.returncode == 0, done.stderr
    trace = characterize.open(trace_path)
    of_file = trace.io["file"].map(trace.paths) == str(file)
    reads = trace.io[of_file & (trace.io["op"] == IoOp.READ)]
    return int(reads["result"].sum()), int(reads["missed_bytes"].sum())


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs"])
def test_what_was_never_written_is_not_missed(kind, tmp_path):
    disk_bytes = 512 << 20
    with loop_device(tmp_path / "image", disk_bytes) as disk, mounted(kind, disk, tmp_path / "place") as place:
        hole, unwritten, written, half = (place / name for name in ("hole", "unwritten", "written", "half"))
        run("truncate", "-s", str(FILE_BYTES), hole)
        run("fallocate", "-l", str(FILE_BYTES), unwritten)
        written.write_bytes(os.urandom(WRITTEN_BYTES))
        half.write_bytes(os.urandom(WRITTEN_BYTES))
        run("truncate", "-s", str(FILE_BYTES), half)
        for file in (hole, unwritten, written, half):
            cache_only(file, [])
        for file, file_bytes, from_device in (
            (hole, FILE_BYTES, 0),
            (unwritten, FILE_BYTES, 0),
            (written, WRITTEN_BYTES, WRITTEN_BYTES),
        ):
            assert read_and_missed(tmp_path / file.name, file, *READ, f"if={file}") == (file_bytes, from_device)
        # A call that has both counts what it brings in of the hole, and so what it reads ahead.
        bytes_read, missed = read_and_missed(tmp_path / "both", half, *READ, f"if={half}")
        assert bytes_read == FILE_BYTES
        assert WRITTEN_BYTES <= missed < WRITTEN_BYTES + (16 << 20)


@pytest.mark.skipif(not has_tracepoint("iomap_dio_complete"), reason="tmpfs takes O_DIRECT since 6.6")
def test_what_is_sent_from_memory_is_not_missed(tmp_path):
    run("mount", "-t", "tmpfs", "none", tmp_path)
    try:
        source = tmp_path / "source"
        source.write_bytes(os.urandom(7 << 20))
        command = (sys.executable, "-c", SENDFILE, source, tmp_path / "target")
        assert read_and_missed(tmp_path / "trace", source, *command) == (7 << 20, 0)
    finally:
        run("umount", "-l", tmp_path)

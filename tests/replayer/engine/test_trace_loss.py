# SPDX-License-Identifier: Apache-2.0
"""A trace that is cut off while it is replayed: the run ends with its result, and its files are removed."""

import os

import pytest

import characterize
from characterize.layout import TRACE_HEADER_BYTES, Fileop
from tests.runs.running_replay import lines_and_document, own_process
from tests.traces.made_trace import made_trace, read
from tests.truths.straced import ENGINE, needs_engine, op
from tests.truths.told import PROGRAMS

SMALL = PROGRAMS / "replay_small_segments"  # reads the trace while it replays it
READS, SYNCS = 1009, 11
PAGE = 4096

pytestmark = [needs_engine, pytest.mark.parallel]


def made(path):
    io = [read(PAGE * (at % 16), PAGE, 10 * at, thread=1 + at % 2) for at in range(READS)]
    fileops = [op(Fileop.FSYNC, 901 * at) for at in range(SYNCS)]
    return characterize.write(made_trace(io, fileops=fileops, files=[{"file": 1, "size_bytes": 16 * PAGE}]), path)


@pytest.mark.parametrize("left_bytes", [0, TRACE_HEADER_BYTES, TRACE_HEADER_BYTES + 5 * PAGE])
@pytest.mark.parametrize("name", ["sync", "io_uring", "null", "small segments"])
def test_a_run_ends_with_its_result(tmp_path, name, left_bytes):
    trace, image = made(tmp_path / "t.iotrace"), tmp_path / "image"
    engine = SMALL if name == "small segments" else ENGINE
    if not engine.exists():
        pytest.skip(f"{engine} is not built (make build/test-programs)")
    command = [engine, trace, "--loop", "--interval-ms=20", "--max-seconds=30", f"--directory={image}"]
    command += [] if engine == SMALL else [f"--engine={name}"]
    with own_process(command) as process:
        assert process.stdout.readline().startswith('{"t_s"')
        os.truncate(trace, left_bytes)
        out, said = process.communicate(timeout=60)
    assert process.returncode == 3, said
    document = lines_and_document(out)[1]
    operations = document["operations"]
    assert document["stopped"] == "error"
    assert any("the trace could not be read" in reason for reason in document["reasons"])
    assert operations["done"] > 0
    assert operations["failed"] == operations["short"] == 0
    assert operations["records"] == operations["done"] + operations["skipped"]
    assert operations["records"] % (READS + SYNCS) == 0
    for kind, records in (("io", READS), ("fileop", SYNCS)):
        assert operations[kind]["records"] == operations["records"] // (READS + SYNCS) * records
    assert not image.exists()

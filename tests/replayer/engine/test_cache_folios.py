# SPDX-License-Identifier: Apache-2.0
"""Pages that the engine brings into the cache come in folios like those of a program that made the trace's requests.

The kernel's own account tells, in this process and in the engine alike: a folio that is written to becomes dirty whole.
"""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import characterize
from characterize.layout import HeaderFlag
from tests.traces.made_trace import made_trace, read, write
from tests.truths.straced import ENGINE, needs_engine

pytestmark = needs_engine

PAGE_BYTES, MIB = 4096, 1 << 20
SIZE = 16 * MIB
WRITES = 97
SECTOR_BYTES = 512  # of the account

PROGRAM = """
import json, os, sys
reads, writes = json.load(sys.stdin)
descriptor = os.open(sys.argv[1], os.O_RDWR)
for offset, size in reads:
    os.pread(descriptor, size, offset)
for offset, size in writes:
    os.pwrite(descriptor, bytes(size), offset)
"""


def pages_dirtied(command, text=""):
    """By a process, which must succeed."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    process.stdin.write(text.encode())
    process.stdin.close()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_oublock * SECTOR_BYTES / PAGE_BYTES


def dirtied(tmp_path, reads):
    """Pages that writes of single pages make dirty after these reads: of a program, and of its trace's replay."""
    random = np.random.default_rng(3)
    pages = random.choice(SIZE // PAGE_BYTES, WRITES, replace=False)
    writes = [(PAGE_BYTES * int(page), PAGE_BYTES) for page in pages]
    io = [read(offset, size, 0, 0) for offset, size in reads] + [write(offset, size, 0, 0) for offset, size in writes]
    files = [{"file": 1, "size_bytes": SIZE}]
    trace = characterize.write(made_trace(io, files=files, flags=HeaderFlag.UNTIMED), tmp_path / "t.iotrace")
    image = tmp_path / "image"
    engine = [ENGINE, trace, f"--directory={image}", "--keep-image"]
    subprocess.run([*engine, "--phase=prepare"], stdout=subprocess.DEVNULL, check=True)
    replayed = pages_dirtied([*engine, "--phase=run", "--cache=warm"])
    path = image / "f00000001"
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)
    by_program = pages_dirtied([sys.executable, "-I", "-B", "-c", PROGRAM, path], json.dumps([reads, writes]))
    return by_program, replayed


def test_what_is_read_at_random_comes_in_single_pages(tmp_path):
    order = np.random.default_rng(2).permutation(SIZE // PAGE_BYTES)
    by_program, replayed = dirtied(tmp_path, [(PAGE_BYTES * int(page), PAGE_BYTES) for page in order])
    assert by_program == pytest.approx(WRITES, rel=0.2)
    assert replayed == pytest.approx(WRITES, rel=0.2)


def test_requests_longer_than_a_run_are_not_taken_for_one(tmp_path):
    """What a program reads in random requests of two megabytes has no folio of that size."""
    order = [5, 1, 6, 2, 7, 0, 4, 3]
    by_program, replayed = dirtied(tmp_path, [(2 * MIB * at, 2 * MIB) for at in order])
    assert replayed < 3 * by_program


def test_what_is_read_in_one_run_comes_in_folios_but_in_no_larger_ones_than_a_readers(tmp_path):
    by_program, replayed = dirtied(tmp_path, [(MIB * at, MIB) for at in range(SIZE // MIB)])
    if by_program < 1.5 * WRITES:
        pytest.skip("this kernel or file system has no large folios")
    assert 1.5 * WRITES < replayed < 1.5 * by_program

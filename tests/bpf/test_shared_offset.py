# SPDX-License-Identifier: Apache-2.0
"""Offsets that the recorder works out at its end: where calls overlap many others, and where nobody wants to wait."""

import subprocess

import numpy as np
import pytest

import characterize
from characterize.layout import NOT_MEASURED_U32, IoFlag
from tests.traces.made_trace import made_trace, write
from tests.truths.told import PROGRAMS

SHARED_OFFSETS = PROGRAMS / "shared_offsets"
BYTES = 100
pytestmark = [
    pytest.mark.parallel,
    pytest.mark.skipif(not SHARED_OFFSETS.exists(), reason=f"{SHARED_OFFSETS} is not built (make build/test-programs)"),
]


def worked_out(place, count, stop):
    """The IO records of appends that all overlap, of which nobody knows more than that they go to the same stretch."""
    width = BYTES * count
    fields = {"flags": IoFlag.OFFSET_INFERRED, "missed_bytes": width, "asked_bytes": BYTES}
    io = [write(0, BYTES, 0, 10**9, **fields) for _ in range(count)]
    path = characterize.write(made_trace(io, files=[{"file": 1}]), place / "t.iotrace")
    return told([SHARED_OFFSETS, path, stop]), characterize.open(path).io


def told(command):
    """The number that a program tells whose standard input can always be read, as that of a file."""
    with SHARED_OFFSETS.open("rb") as readable:
        done = subprocess.run(command, stdin=readable, capture_output=True, check=True, timeout=120)
    return int(done.stdout)


def test_each_has_a_stretch_of_its_own(tmp_path):
    given_up, io = worked_out(tmp_path, 1000, "-1")
    assert given_up == 0
    assert io["offset"].tolist() == [BYTES * at for at in range(1000)]
    assert (io["missed_bytes"] == NOT_MEASURED_U32).all()


def test_what_overlaps_too_many_is_given_up(tmp_path):
    """The k-th looks at k others to find out that a place is taken, and there are k places."""
    given_up, io = worked_out(tmp_path, 1600, "-1")
    known = np.flatnonzero(io["offset"])
    assert 0 < given_up == 1600 - 1 - len(known) < 400
    assert io["offset"][known].tolist() == [BYTES * at for at in known]
    assert (io["missed_bytes"] == NOT_MEASURED_U32).all()


def test_a_stop_gives_up_all_that_are_left(tmp_path):
    given_up, io = worked_out(tmp_path, 3000, "0")
    assert given_up == 3000
    assert (io["offset"] == 0).all()
    assert (io["missed_bytes"] == NOT_MEASURED_U32).all()


def test_what_there_is_no_memory_for_is_given_up(tmp_path):
    count = 300_000  # the recorder notes 2^18 of them in 2 MiB, and then needs twice as much
    assert told([PROGRAMS / "unnoted_offsets", tmp_path / "t.iotrace", str(count)]) == count
    assert (characterize.open(tmp_path / "t.iotrace").io["missed_bytes"] == NOT_MEASURED_U32).all()

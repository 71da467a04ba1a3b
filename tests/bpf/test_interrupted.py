# SPDX-License-Identifier: Apache-2.0
"""Requests of io_uring that end in an interrupt: the thread that was interrupted goes on with its own call.

The truth is what tests/programs/interrupted.c told.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from characterize.layout import IoOp, RecordKind, Source
from tests.truths.told import compare, record

pytestmark = [pytest.mark.records, pytest.mark.parallel]


@pytest.fixture(autouse=True)
def disk(tmp_path):
    number = tmp_path.stat().st_dev
    if not Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}").exists():
        pytest.skip(f"{tmp_path} is not on a disk")


def test_calls_that_are_interrupted_keep_what_they_are(tmp_path):
    run = record(tmp_path / "interrupted", "interrupted")
    told = run.told_data()
    assert sum(row.source == Source.IO_URING for row in told) == 2 * 499
    compare((row[:9] for row in told), (row[:9] for row in run.data() if row.source != Source.MMAP))
    ids = run.trace.arrays[RecordKind.IO]["id"]
    assert len(set(ids.tolist())) == len(ids)


def test_stores_beside_a_request_that_an_interrupt_has_begun_are_recorded(tmp_path):
    """The request is still in flight, and the thread is in its program again."""
    run = record(tmp_path / "stores", "stores_beside_request")
    files = [file for file, name in run.names.items() if name.startswith("stored-")]
    io = run.trace.io
    stores = io[(io["source"] == Source.MMAP) & (io["op"] == IoOp.WRITE) & io["file"].isin(files)]
    assert len(stores) == len(set(stores["file"])) == int(run.others["stored"][0][0])

# SPDX-License-Identifier: Apache-2.0
"""Requests of io_uring that end in an interrupt: the thread that was interrupted goes on with its own call.

The truth is what tests/programs/interrupted.c told.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from characterize.layout import RecordKind, Source
from tests.told import compare, record

pytestmark = pytest.mark.records


def test_calls_that_are_interrupted_keep_what_they_are(tmp_path):
    number = tmp_path.stat().st_dev
    if not Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}").exists():
        pytest.skip(f"{tmp_path} is not on a disk")
    run = record(tmp_path / "interrupted", "interrupted")
    told = run.told_data()
    assert sum(row.source == Source.IO_URING for row in told) == 2 * 499
    compare((row[:9] for row in told), (row[:9] for row in run.data() if row.source != Source.MMAP))
    ids = run.trace.arrays[RecordKind.IO]["id"]
    assert len(set(ids.tolist())) == len(ids)

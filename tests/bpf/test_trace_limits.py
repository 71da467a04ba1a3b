# SPDX-License-Identifier: Apache-2.0
"""How small a recording may be told to stay (--max-size) on machines with many CPUs and devices."""

from __future__ import annotations

import subprocess

import pytest

from tests.truths.told import PROGRAMS

MIB = 1 << 20
RECORDS_MIN = 4096

pytestmark = pytest.mark.parallel


@pytest.mark.parametrize(
    ("cpus", "devices", "slaves", "limit_max"),
    [
        (1, 0, 0, MIB),
        (2, 10, 16, MIB),
        (2, 10, 384, MIB),
        (2, 512, 16, MIB),
        (128, 100, 16, MIB),
        (1024, 512, 16, 2 * MIB),
        (8192, 512, 16, 9 * MIB),
        (2, 5000, 16, 5 * MIB),
    ],
)
def test_the_smallest_limit_holds_and_leaves_room_for_records(tmp_path, cpus, devices, slaves, limit_max):
    """Each device is made of so many others."""
    path = tmp_path / "t.iotrace"
    command = [PROGRAMS / "trace_limits", path, *map(str, (cpus, devices, slaves))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    limit, records = map(int, done.stdout.split())
    assert records >= RECORDS_MIN
    assert limit <= limit_max
    assert path.stat().st_size <= limit

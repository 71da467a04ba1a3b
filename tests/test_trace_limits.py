# SPDX-License-Identifier: Apache-2.0
"""How small a recording may be told to stay (--max-size) on machines with many CPUs and devices."""

from __future__ import annotations

import subprocess

import pytest

from tests.told import PROGRAMS

MIB = 1 << 20
RECORDS_MIN = 4096

pytestmark = pytest.mark.parallel


@pytest.mark.parametrize(
    ("cpus", "devices", "limit_max"),
    [
        (1, 0, MIB),
        (2, 10, MIB),
        (2, 512, MIB),
        (128, 100, MIB),
        (1024, 512, 2 * MIB),
        (8192, 512, 9 * MIB),
        (2, 5000, 5 * MIB),
    ],
)
def test_the_smallest_limit_holds_and_leaves_room_for_records(tmp_path, cpus, devices, limit_max):
    path = tmp_path / "t.iotrace"
    command = [PROGRAMS / "trace_limits", path, str(cpus), str(devices)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    limit, records = map(int, done.stdout.split())
    assert records >= RECORDS_MIN
    assert limit <= limit_max
    assert path.stat().st_size <= limit

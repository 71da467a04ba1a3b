# SPDX-License-Identifier: Apache-2.0
"""Which part of the schedules of a run's passes they may have slipped by, for its result to be trusted."""

import subprocess
from pathlib import Path

import pytest

PROGRAM = Path("build/tests/verdicts").resolve()
MS = 10**6

pytestmark = [
    pytest.mark.parallel,
    pytest.mark.skipif(not PROGRAM.exists(), reason="build/tests/verdicts is missing: make build/test-programs"),
]


@pytest.mark.parametrize(
    ("passes", "slipped_ns", "verdict"),
    [
        (1, 0, "on_time"),
        (1, 9 * MS, "on_time"),
        (1, 11 * MS, "behind"),
        (7, 11 * MS, "on_time"),  # less than 2 ms of each second
        (7, 69 * MS, "on_time"),
        (7, 71 * MS, "behind"),
    ],
)
def test_a_schedule_may_slip_by_a_hundredth_of_its_length_in_each_pass(passes, slipped_ns, verdict):
    done = subprocess.run([PROGRAM, str(passes), str(slipped_ns)], capture_output=True, text=True, check=True)
    assert done.stdout == f"{verdict}\n"

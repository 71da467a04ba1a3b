# SPDX-License-Identifier: Apache-2.0
"""How large the recorder makes its rings on machines with many CPUs, few of them online, or little memory."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.truths.told import PROGRAMS

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

pytestmark = pytest.mark.parallel


def plan(tmp_path: Path, online: str, *numbers: int) -> tuple[list[int], list[int], str]:
    """Sizes, CPUs that are online, and what the user is told, of possible CPUs, wanted bytes and bytes of memory."""
    listed = tmp_path / "online"
    if online:
        listed.write_text(f"{online}\n")
    command = [PROGRAMS / "ring_plans", listed, *map(str, numbers)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    sizes, found = ([int(word) for word in line.split()] for line in done.stdout.splitlines())
    return sizes, found, done.stderr


@pytest.mark.parametrize(
    ("online", "cpus", "found"),
    [
        ("0-1", 2, [0, 1]),
        ("0", 4, [0]),
        ("0-2,5,7-8", 9, [0, 1, 2, 5, 7, 8]),
        ("0-7", 4, [0, 1, 2, 3]),
        ("", 3, [0, 1, 2]),  # no such file: none is known to be offline
    ],
)
def test_which_cpus_are_online(tmp_path, online, cpus, found):
    sizes, those, _ = plan(tmp_path, online, cpus, 0, 64 * GIB)
    assert those == found
    assert sizes[:2] == [len(found), cpus - len(found)]


@pytest.mark.parametrize(
    ("machine", "sizes", "told"),
    [
        (("0-1", 2, 0, 8 * GIB), [2, 0, 16 * MIB, 256 * KIB, 32 * MIB], ""),
        (("0-1", 128, 0, 8 * GIB), [2, 126, 16 * MIB, 256 * KIB, 32 * MIB + 126 * 256 * KIB], ""),
        # All that may come take no more than the two that are there.
        (("0-1", 512, 0, 8 * GIB), [2, 510, 16 * MIB, 64 * KIB, 32 * MIB + 510 * 64 * KIB], ""),
        (("0-1", 240, 0, GIB), [2, 238, 16 * MIB, 128 * KIB, 32 * MIB + 238 * 128 * KIB], ""),
        # A sixteenth of the memory is 32 MiB.
        (
            ("0-1", 240, 0, GIB // 2),
            [2, 238, 8 * MIB, 64 * KIB, 16 * MIB + 238 * 64 * KIB],
            "note: the ring buffers have ",
        ),
        (("0-127", 128, 0, 512 * GIB), [128, 0, 8 * MIB, 128 * KIB, GIB], "128 CPUs take no more than 1024 MiB"),
        (("0-127", 128, 0, 4 * GIB), [128, 0, 2 * MIB, 32 * KIB, 256 * MIB], "--ring-bytes for others"),
        (("0-8191", 8192, 0, GIB), [8192, 0, 32 * KIB, 32 * KIB, 256 * MIB], "have 32768 bytes"),  # none is smaller
        # Who says so gets it.
        (
            ("0-127", 128, 16 * MIB, GIB),
            [128, 0, 16 * MIB, 256 * KIB, 2 * GIB],
            "warning: the ring buffers of 128 CPUs",
        ),
        (("0", 2, 32 * KIB, GIB), [1, 1, 32 * KIB, 32 * KIB, 64 * KIB], ""),
    ],
)
def test_sizes(tmp_path, machine, sizes, told):
    found, _, said = plan(tmp_path, *machine)
    assert found == sizes
    assert told in said
    assert bool(told) == bool(said)

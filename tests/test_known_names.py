# SPDX-License-Identifier: Apache-2.0
"""Which names the recorder keeps: those of files that are there, so that its memory does not grow by what has gone."""

from __future__ import annotations

import subprocess

import pytest

from tests.told import PROGRAMS

KNOWN_NAMES = PROGRAMS / "known_names"

pytestmark = [
    pytest.mark.parallel,
    pytest.mark.skipif(not KNOWN_NAMES.exists(), reason=f"{KNOWN_NAMES} is not built (make build/test-programs)"),
]

CASES = {
    "a file and its directories": (["put /a/b/f"], [], (1, 2)),
    "removed one by one": (["put /a/b/f", "remove /a/b/f", "remove /a/b", "remove /a"], [], (0, 0)),
    "a directory that is empty": (["put /a", "put /a/b", "remove /a/b", "remove /a"], [], (0, 0)),
    "a file beside what was removed": (["put /a/b/f", "put /a/g", "remove /a/b/f", "remove /a/b"], ["/a/g 2"], (1, 1)),
    "made again": (["put /a/f", "remove /a/f", "remove /a", "put /a/g", "move /a /b"], ["/b/g 2", "/a/g 0"], (1, 1)),
    "moved with all below": (
        ["put /a/b/c/f", "put /a/b/g", "put /ab/h", "move /a/b /d"],
        ["/d/c/f 1", "/d/g 2", "/ab/h 3", "/a/b/c/f 0"],
        (3, 4),  # /a, /ab, /d, /d/c
    ),
    "to and fro": (["put /a/b/f", *["move /a/b /c", "move /c /a/b"] * 5], ["/a/b/f 1"], (1, 2)),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_kept(name):
    calls, found, counts = CASES[name]
    words = " ".join([*calls, *(f"find {line.split()[0]}" for line in found)]).split()
    done = subprocess.run([KNOWN_NAMES, *words], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [*found, " ".join(map(str, counts))]


def test_temporary_directories_leave_nothing():
    rounds = [f"put /tmp/{at}/f remove /tmp/{at}/f remove /tmp/{at}" for at in range(1000)]
    done = subprocess.run([KNOWN_NAMES, *" ".join(rounds).split()], capture_output=True, text=True, check=True)
    assert done.stdout == "0 1\n"

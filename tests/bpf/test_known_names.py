# SPDX-License-Identifier: Apache-2.0
"""Which names the recorder keeps: those of files that are there, so that its memory does not grow by what has gone."""

from __future__ import annotations

import subprocess

import pytest

from tests.truths.told import PROGRAMS

KNOWN_NAMES = PROGRAMS / "known_names"

pytestmark = [
    pytest.mark.parallel,
    pytest.mark.skipif(not KNOWN_NAMES.exists(), reason=f"{KNOWN_NAMES} is not built (make build/test-programs)"),
]

# What is done; what is found then, by path: file, and who carries the path; how many entries of directories are kept.
CASES = {
    "a file and its directories": (["put /a/b/f"], [], 3),
    "removed one by one": (["put /a/b/f", "remove /a/b/f", "remove /a/b", "remove /a"], [], 0),
    "a directory that is empty": (["put /a", "put /a/b", "remove /a/b", "remove /a"], [], 0),
    "a file beside what was removed": (["put /a/b/f", "put /a/g", "remove /a/b/f", "remove /a/b"], ["/a/g 2 2"], 2),
    "made again": (
        ["put /a/f", "remove /a/f", "remove /a", "put /a/g", "rename /a /b"],
        ["/b/g 2 2", "/a/g 0 0", "/b/f 0 0"],
        2,
    ),
    "a file that has the place of a directory": (["put /a/f", "remove /a", "put /a"], ["/a 2 2", "/a/f 0 0"], 2),
    "renamed": (["put /f", "rename /f /a/g"], ["/a/g 1 2", "/f 0 0"], 2),
    "renamed over another": (["put /f", "put /g", "rename /f /g"], ["/g 1 3", "/f 0 0"], 1),
    "exchanged": (["put /f", "put /a/g", "exchange /f /a/g"], ["/f 2 1", "/a/g 1 3"], 3),
    "a directory exchanged with another": (
        ["put /a/f", "put /b/c/f", "exchange /a /b"],
        ["/a/c/f 2 2", "/b/f 1 1", "/a/f 0 0"],
        5,
    ),
    "a directory exchanged with a file": (["put /a/f", "put /g", "exchange /a /g"], ["/g/f 1 1", "/a 2 0"], 3),
    "moved with all below": (
        ["put /a/b/c/f", "put /a/b/g", "put /ab/h", "rename /a/b /d"],
        ["/d/c/f 1 1", "/d/g 2 2", "/ab/h 3 3", "/a/b/c/f 0 0"],
        7,  # /a, /ab, /ab/h, /d, /d/c, /d/c/f, /d/g
    ),
    "to and fro": (["put /a/b/f", *["rename /a/b /c", "rename /c /a/b"] * 5], ["/a/b/f 1 1", "/a/b 0 11"], 3),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_kept(name):
    calls, found, entries = CASES[name]
    words = " ".join([*calls, *(f"find {line.split()[0]}" for line in found)]).split()
    done = subprocess.run([KNOWN_NAMES, *words], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [*found, str(entries)]


def test_temporary_directories_leave_nothing():
    rounds = [f"put /tmp/{at}/f remove /tmp/{at}/f remove /tmp/{at}" for at in range(1000)]
    done = subprocess.run([KNOWN_NAMES, *" ".join(rounds).split()], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"

# SPDX-License-Identifier: Apache-2.0
"""More disks than any machine of the tests has: those of a made /sys, which the recorder and its command see."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.truths.told import RECORDER, open_closed

DISKS = 600
MEMBERS = 53
MIB = 1 << 20

pytestmark = [pytest.mark.records, pytest.mark.parallel]

# Runs the rest of its arguments in a mount namespace in which there are no disks.
WITHOUT_DISKS = """
for place in /sys/block /sys/dev/block; do mount -t tmpfs none $place || exit; done
exec "$@"
"""
MADE = """
import os, sys
def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file: file.write(text)
def make(disks):
    for minor in range(disks):
        write(f"/sys/dev/block/300:{minor}/size", "8")
        write(f"/sys/block/{minor}/dev", f"300:{minor}")
        write(f"/sys/block/{minor}/stat", "0 0 0 0 0 0 0 0")
def join(members):
    for minor in members: write(f"/sys/dev/block/300:0/slaves/{minor}/dev", f"300:{minor}")
"""
MOVE = """
for place in os.scandir("/sys/block"): write(f"{place.path}/stat", "0 0 7 0 0 0 11 0")
"""


def run(*command):
    return subprocess.run(
        ["unshare", "--mount", "sh", "-c", WITHOUT_DISKS, "sh", *map(str, command)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_all_disks_are_told_and_compared(tmp_path):
    trace = tmp_path / "t"
    recorder = [RECORDER, "-o", trace, "--layer", "block", "--", sys.executable, "-c", f"{MADE}{MOVE}"]
    done = run(sys.executable, "-c", f"{MADE}make({DISKS}); os.execv(sys.argv[1], sys.argv[1:])", *recorder)
    assert done.returncode == 0, done.stderr
    metadata = open_closed(trace).header.metadata
    disks = {f"300:{minor}" for minor in range(DISKS)}
    assert disks <= {device["device"] for device in metadata["devices"]}
    moved = {"read_bytes": 7 * 512, "write_bytes": 11 * 512}
    both = {name: {"seen": 0, "kernel": count, "ratio": 0} for name, count in moved.items()}
    assert metadata["closure"]["devices"] == dict.fromkeys(disks, both)


def test_a_disk_that_is_made_of_many_names_them_all(tmp_path):
    members = range(1, 1 + MEMBERS)
    recorder = [RECORDER, "-o", tmp_path / "t", "--layer", "block", "--", "true"]
    made = f"{MADE}make({1 + MEMBERS}); join({members}); os.execv(sys.argv[1], sys.argv[1:])"
    done = run(sys.executable, "-c", made, *recorder)
    assert done.returncode == 0, done.stderr
    devices = {device["device"]: device for device in open_closed(tmp_path / "t").header.metadata["devices"]}
    assert set(devices["300:0"]["slaves"]) == {f"300:{minor}" for minor in members}
    assert devices["300:0"]["stacked"]


def test_a_limit_that_disks_exceed_which_come_meanwhile_is_told(tmp_path):
    """What the records have room for is known only at the beginning."""
    trace, place = tmp_path / "t", tmp_path / "place"
    fill = f"with open('{place}', 'wb', buffering=0) as file:\n for _ in range(20000): file.write(b'.')"
    options = ("-o", trace, "--layer", "vfs", "--path", place, "--max-size", "1M")
    done = run(RECORDER, *options, "--", sys.executable, "-c", f"{MADE}make({10 * DISKS})\n{fill}")
    assert done.returncode in {0, 3}, done.stderr
    assert open_closed(trace).header.metadata["stopped_by"] == "max-size"
    assert trace.stat().st_size > MIB
    assert f"the trace is {trace.stat().st_size - MIB} bytes larger than --max-size" in done.stderr

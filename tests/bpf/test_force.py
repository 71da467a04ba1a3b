# SPDX-License-Identifier: Apache-2.0
"""Recordings in the place of earlier traces."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

import characterize
from characterize.layout import HeaderFlag
from tests.truths.told import RECORDER, interrupt_command, run_recorder

pytestmark = [pytest.mark.records, pytest.mark.parallel]


@pytest.mark.parametrize("begins", [True, False])
def test_a_forced_recording_leaves_what_was_there_to_who_has_it_open(tmp_path, begins):
    """A replay has it mapped, and would end by SIGBUS; and it is the trace until recording has begun."""
    before, trace, link = os.urandom(1 << 20), tmp_path / "t", tmp_path / "link"
    trace.write_bytes(before)
    link.symlink_to(trace)
    with trace.open("rb") as stream:
        program = ("sh", "-c", f"sleep 0.3; cp {trace} {tmp_path}/copy") if begins else ("sleep", "0.5")
        with subprocess.Popen(
            ["env", "--default-signal=INT", RECORDER, "-o", link, "--force", "--", *program],
            stderr=subprocess.PIPE,
            text=True,
        ) as recorder:
            if not begins:
                interrupt_command(recorder.pid)
            said = recorder.communicate(timeout=120)[1]
        assert recorder.returncode == (0 if begins else 128 + signal.SIGINT), said
        assert stream.read() == before
    assert link.is_symlink()
    if begins:
        assert characterize.open(tmp_path / "copy").header.flags & HeaderFlag.INCOMPLETE
        assert not characterize.open(trace).warnings
    else:
        assert trace.read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == {"t", "link", *(["copy"] if begins else [])}


def test_what_was_there_stays_where_the_command_cannot_be_started(tmp_path):
    trace = tmp_path / "t"
    trace.write_bytes(b"precious")
    for output in (trace, tmp_path / "new"):
        assert run_recorder(output, "/no/such", options=("--force",)).returncode == 1
    assert trace.read_bytes() == b"precious"
    assert not (tmp_path / "new").exists()


def test_a_forced_recording_is_as_readable_as_what_was_there(tmp_path):
    trace = tmp_path / "t"
    trace.write_bytes(b"precious")
    trace.chmod(0o640)
    os.chown(trace, 1234, 5678)
    subprocess.run([RECORDER, "-o", trace, "--force", "--", "true"], check=True, capture_output=True, timeout=120)
    status = trace.stat()
    assert (status.st_mode & 0o7777, status.st_uid, status.st_gid) == (0o640, 1234, 5678)
    assert not characterize.open(trace).warnings


def test_what_cannot_be_replaced_is_written_itself(tmp_path):
    """A file that is a mount point, as in containers."""
    trace = tmp_path / "t"
    trace.write_bytes(os.urandom(1 << 20))
    mounted = subprocess.run(["mount", "--bind", trace, trace], capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"nothing can be mounted here: {mounted.stderr.strip()}")
    try:
        done = subprocess.run(
            [RECORDER, "-o", trace, "--force", "--", "true"], capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == 0, done.stderr
        assert not characterize.open(trace).warnings
    finally:
        subprocess.run(["umount", trace], check=True)
    assert [path.name for path in tmp_path.iterdir()] == ["t"]

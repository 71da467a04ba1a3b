# SPDX-License-Identifier: Apache-2.0
"""Turns a replay into a command that records it, and says beforehand whether that works."""

from __future__ import annotations

import subprocess
from pathlib import Path

from characterize.errors import FlextraceError
from replayer.run import RECORDER_TALK
from replayer.running.binaries import find_binary
from replayer.running.confine import MemoryGroup


def recorder_command(
    recording: Path, directory: Path, *, memory_group: MemoryGroup | None = None, force: bool = False
) -> list[str]:
    """The command that records a replay, for `replayer.run.replay`.

    Only operations on files below `directory`, or on a block device of that name, are recorded, so that the engine's
    reading of its trace, its program and its libraries is not.
    """
    command = [str(find_binary("flextrace-record")), "--quiet", f"--output={recording}", f"--path={directory}"]
    command += [f"--cgroup={memory_group.path}"] if memory_group else []
    return [*command, *(["--force"] if force else []), "--"]


def check_recorder(directory: Path) -> None:
    """Find out whether recording works, before an image is laid out for nothing.

    Raises
    ------
    FlextraceError
        It does not; the recorder says why and what to do.
    """
    command = [str(find_binary("flextrace-record")), "--dry-run", f"--path={directory}", "--", "true"]
    # It names the directory, which need not be UTF-8.
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, errors="replace", check=False)
    if done.returncode:
        message = done.stderr.strip().removeprefix(RECORDER_TALK) or f"exit status {done.returncode}"
        raise FlextraceError(f"the replay cannot be recorded: {message}")

# SPDX-License-Identifier: Apache-2.0
"""Runs a command on a terminal, for tests of what it is told there while it works."""

from __future__ import annotations

import os
import pty
import subprocess
import termios
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from tests.truths.straced import ROOT


def on_terminal(command: Iterable[object], columns: int, **keywords: Any) -> tuple[str, str]:
    """What a command that succeeds sends to a terminal of so many columns, its standard error, and what it prints."""
    ours, its = pty.openpty()
    termios.tcsetwinsize(its, (24, columns))
    pipes = {"stdin": its, "stdout": subprocess.PIPE, "stderr": its}
    with subprocess.Popen(list(map(str, command)), cwd=ROOT, text=True, **pipes, **keywords) as process:
        os.close(its)
        sent = b""
        with suppress(OSError):  # the other end is closed
            while part := os.read(ours, 4096):
                sent += part
        os.close(ours)
        printed, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    return sent.decode(), printed

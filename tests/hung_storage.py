# SPDX-License-Identifier: Apache-2.0
"""Storage that does not answer: a frozen file system holds who writes to it, in the kernel, where no signal comes."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any


@contextlib.contextmanager
def frozen(place: Path) -> Iterator[None]:
    """A mounted file system, as long as this lasts."""
    subprocess.run(["fsfreeze", "--freeze", place], check=True)
    try:
        yield
    finally:
        subprocess.run(["fsfreeze", "--unfreeze", place], check=True)


def rest_of_document(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The lines behind the interval lines, up to the end of the document: the process may hang behind it."""
    assert process.stdout
    lines: list[str] = []
    for line in process.stdout:
        if lines or line == "{\n":
            lines.append(line)
        if lines and line == "}\n":
            break
    return json.loads("".join(lines))


def let_go(place: Path) -> None:
    """Wait until the kernel has taken a ring apart, which holds its files for a moment after its process has ended."""
    for _ in range(200):
        if subprocess.run(["mount", "-o", "remount,ro", place], capture_output=True, check=False).returncode == 0:
            return
        time.sleep(0.05)

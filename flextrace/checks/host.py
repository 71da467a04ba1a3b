# SPDX-License-Identifier: Apache-2.0
"""Where the kernel says what it is; tests put made-up files there."""

from __future__ import annotations

import os
import platform
import re
from dataclasses import dataclass, field
from pathlib import Path

INITIAL_PID_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO (include/linux/proc_ns.h)


@dataclass(frozen=True)
class Host:
    """A machine as its files show it.

    Attributes
    ----------
    proc, sys : Path
        The pseudo file systems.
    release, machine : str
        As of uname(2).
    """

    proc: Path = Path("/proc")
    sys: Path = Path("/sys")
    release: str = field(default_factory=platform.release)
    machine: str = field(default_factory=platform.machine)

    def text(self, path: Path) -> str | None:
        """Contents of a file without blanks around, or None if it cannot be read."""
        try:
            return path.read_text(errors="replace").strip()
        except OSError:
            return None

    @property
    def version(self) -> tuple[int, int]:
        """Major and minor version of the kernel; (0, 0) if its release does not tell."""
        match = re.match(r"(\d+)\.(\d+)", self.release)
        return (int(match[1]), int(match[2])) if match else (0, 0)

    @property
    def in_user_namespace(self) -> bool:
        """Whether capabilities of this process count only in a namespace of its own."""
        text = self.text(self.proc / "self/uid_map")
        return text is not None and text.split() != ["0", "0", "4294967295"]

    @property
    def in_pid_namespace(self) -> bool:
        """Whether processes have other numbers here than in the kernel, as far as /proc tells."""
        try:
            return os.readlink(self.proc / "self/ns/pid") != INITIAL_PID_NAMESPACE
        except OSError:
            return False

    @property
    def gains_no_privileges(self) -> bool:
        """Whether programs that are started from here gain nothing by sudo or file capabilities."""
        text = self.text(self.proc / "self/status") or ""
        return "\nNoNewPrivs:\t1" in text


def readable(path: Path) -> bool:
    """Whether its contents can be read; os.access may say so of files that refuse it."""
    try:
        with open(path, "rb") as file:
            return bool(file.read(1))
    except OSError:
        return False


def ignores_file_capabilities(path: Path) -> bool:
    """Whether the file system of a program is mounted so that setcap has no effect."""
    try:
        return bool(os.statvfs(path).f_flag & os.ST_NOSUID)
    except OSError:
        return False

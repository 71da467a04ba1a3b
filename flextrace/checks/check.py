# SPDX-License-Identifier: Apache-2.0
"""Turns outcomes of checks into one verdict."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class Status(StrEnum):
    """What a check found."""

    OK = "ok"
    WARN = "warn"
    """Recording works, but something is lost, or another verb does not work."""
    FAIL = "fail"
    """Recording does not work."""


class Verdict(StrEnum):
    """What all checks found together."""

    WORKS = "works"
    LIMITED = "limited"
    FAILS = "fails"


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Attributes
    ----------
    area : str
        What it belongs to, such as ``kernel``.
    name : str
        What was looked at.
    status : Status
        How it was found.
    cause : str
        What was found; what is lost.
    remedy : str
        What to do, with the exact command where there is one; empty only where nothing is to be done.
    """

    area: str
    name: str
    status: Status
    cause: str
    remedy: str = ""


def ok(area: str, name: str, cause: str) -> Check:
    """Nothing to do."""
    return Check(area, name, Status.OK, cause)


def warn(area: str, name: str, cause: str, remedy: str) -> Check:
    """Recording works all the same."""
    return Check(area, name, Status.WARN, cause, remedy)


def fail(area: str, name: str, cause: str, remedy: str) -> Check:
    """Recording does not work."""
    return Check(area, name, Status.FAIL, cause, remedy)


def verdict_of(checks: Iterable[Check]) -> Verdict:
    """The worst of them."""
    found = {check.status for check in checks}
    if Status.FAIL in found:
        return Verdict.FAILS
    return Verdict.LIMITED if Status.WARN in found else Verdict.WORKS


def with_root(words: str) -> str:
    """A command of flextrace that works as root, whose PATH need not have ours."""
    program = Path(sys.prefix) / "bin" / "flextrace"
    return f"sudo {shlex.quote(str(program)) if program.exists() else 'flextrace'} {words}"

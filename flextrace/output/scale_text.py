# SPDX-License-Identifier: Apache-2.0
"""Turns a run of ``flextrace scale`` into what is said of it: what the budget did not pay for, and what to do next."""

from __future__ import annotations

import shlex
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from characterize.units import format_duration

if TYPE_CHECKING:
    from selfscale.exploring.self_scaling import SelfScaling
    from selfscale.profiles.steadiness import Unsteady

WIDTH = 98
BEFORE_TOLD = 0.3
"""Of the budget: what may be gone before the first point without being told where too little was left."""


def much_before(spent_s: float, budget_s: float) -> str:
    """What was before the first point, where that was much of the budget; else empty."""
    if spent_s <= BEFORE_TOLD * budget_s:
        return ""
    return (
        f"that took {format_duration(spent_s)} of the budget of {format_duration(budget_s)}: a larger --budget, or a "
        "smaller --memory, leaves more to the points"
    )


def wrapped(sentences: list[str]) -> list[str]:
    """Lines that a terminal need not break."""
    return [
        line
        for sentence in sentences
        for line in textwrap.wrap(sentence, WIDTH, subsequent_indent="    ", break_on_hyphens=False)
    ]


def spent_of(spent_s: float, budget_s: float) -> str:
    """What a run took, and by how much that was too long."""
    beyond = f", where the budget was {format_duration(budget_s)}" if spent_s > budget_s else ""
    return f"{format_duration(spent_s)}{beyond}"


def what_next(output: Path, missing: str, exploration: SelfScaling, found: Unsteady) -> list[str]:
    """What to do with a profile that is written, by what is to be trusted of it."""
    from selfscale.profiles.steadiness import DISTRUSTED_SHARE, REMEDY, WARNED_SHARE  # noqa: PLC0415

    lines = [f"{missing}; use a larger --budget and --force"] if missing else []
    if exploration.complete and exploration.storage_missed:
        lines.append(
            "the budget ended before storage had been measured by itself: no application can be simulated from "
            f"{output}; use a larger --budget and --force"
        )
    if found.above(DISTRUSTED_SHARE):
        lines.append(
            f"the machine did not become steady: {found} were not, and predictions from {output} carry that warning; "
            f"{REMEDY}, and --force"
        )
    elif exploration.complete:
        if found.above(WARNED_SHARE):
            lines.append(f"predictions will warn that {found} were not steady; {REMEDY}, and --force")
        lines.append(f"next: flextrace predict {shlex.quote(str(output))} --trace TRACE.iotrace")
    return lines


def missing_of(exploration: SelfScaling, random_workloads: int) -> str:
    """What the budget did not pay for; empty if it paid for all."""
    if not exploration.complete:
        resumed_s = sum(point.resumed_s for point in exploration.points + exploration.storage)
        before_s, budget_s = exploration.settings.spent_s + resumed_s, exploration.settings.budget_s
        told = f"{format_duration(before_s)} of it went to laying out files and ageing the page cache, "
        cause = told if before_s > BEFORE_TOLD * budget_s else ""
        return f"the budget ended before every curve had its ends: {cause}predictions will be poor"
    repeated = sum(point.role == "random" and point.repeat == 1 for point in exploration.points)
    if repeated < random_workloads:
        return (
            f"the budget ended before more than {repeated} of {random_workloads} random workloads had been measured "
            "twice"
        )
    return ""

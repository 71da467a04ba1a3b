# SPDX-License-Identifier: Apache-2.0
"""Runs an exploration with its journal until it is killed before some point, or until it ends."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from characterize.workload import Workload
from selfscale.exploring.journal import Journal
from selfscale.exploring.plan import Step
from selfscale.exploring.self_scaling import SelfScaling
from selfscale.measure import Point

Measure = Callable[[Step], Point]
Exploring = TypeVar("Exploring", bound=SelfScaling)


class KilledError(Exception):
    """Stands for the loss of the process."""


def run_with_journal(
    exploring: Callable[[Measure, Sequence[Workload]], Exploring],
    path: Path,
    measure: Measure,
    *,
    resume: bool = False,
    stop_after: int | None = None,
) -> Exploring:
    """The exploration, which has not measured more than `stop_after` points, those of the journal included."""
    journal = Journal(path, {}, {}, resume=resume)
    measured = len(journal.points)

    def limited(step: Step) -> Point:
        nonlocal measured
        if measured == stop_after:
            raise KilledError
        measured += 1
        return measure(step)

    exploration = exploring(journal.wrap(limited), journal.informative)
    with contextlib.suppress(KilledError):
        exploration.run()
    return exploration

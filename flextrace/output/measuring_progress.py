# SPDX-License-Identifier: Apache-2.0
"""Turns the points of a measurement into what is told while it goes on: a bar on a terminal, else a line a point."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from characterize.units import format_duration, format_megabytes

if TYPE_CHECKING:
    from selfscale.exploring.plan import Step
    from selfscale.measure import Point

BESIDE_COLUMNS = 28
"""Of a terminal, for how many points there are, and for the ETA."""


class Progress:
    """A bar with ETA on a terminal, one line a point otherwise."""

    def __init__(self, budget_s: float, known: int, say: Callable[[str], None]):
        self._say = say
        self._budget_s = budget_s
        self._known = known
        self._spent_s = 0.0
        self._bar: Any = None

    def __enter__(self) -> Progress:
        if sys.stderr.isatty():
            from rich.console import Console  # noqa: PLC0415
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn  # noqa: PLC0415
            from rich.table import Column  # noqa: PLC0415

            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(table_column=Column(no_wrap=True)),  # so that it is the bar that gets shorter
                TextColumn("{task.fields[eta]}"),
                console=Console(stderr=True),
            )
            self._bar.start()
            self._task = self._bar.add_task("starting", total=None, eta="")
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the bar, so that what is said next stands below it."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _fitting(self, text: str) -> str:
        """What of a text a line has room for: the count and the ETA must not go for it."""
        return text[: max(0, self._bar.console.width - BESIDE_COLUMNS)]

    def wrap(self, step: Any) -> Any:
        """The same function, telling of every point."""
        from selfscale.measure import describe  # noqa: PLC0415

        def told(request: Step) -> Point:
            if self._bar is not None:
                description = self._fitting(describe(request.workload))
                self._bar.update(self._task, description=description, total=request.planned)
            point: Point = step(request)
            self._spent_s += point.cost_s
            left = (request.planned - request.number) * self._spent_s / request.number
            left = min(left, self._budget_s - self._spent_s)
            eta = f"ETA {format_duration(left)}" if left > 0.5 else "done"
            if self._bar is not None:
                self._bar.update(self._task, completed=request.number, eta=eta)
            elif request.number > self._known:
                self._say(f"{request.number}/{request.planned} {describe(request.workload)}: {_outcome(point)}; {eta}")
            return point

        return told


def _outcome(point: Point) -> str:
    text = f"{format_megabytes(point.throughput_bytes_per_s)} MB/s"
    if point.throughput_bytes_per_s > 0 and point.ci95_half_width_bytes_per_s < float("inf"):
        text += f" +- {point.ci95_half_width_bytes_per_s / point.throughput_bytes_per_s:.1%}"
    if point.disturbed_bytes_per_s is not None:
        text += f", measured twice: {format_megabytes(point.disturbed_bytes_per_s)} MB/s by a run that was disturbed"
    return text if point.steady else f"{text} (not steady: {point.reason})"

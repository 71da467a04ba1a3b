# SPDX-License-Identifier: Apache-2.0
"""Turns a function that measures workloads into one that measures a disturbed one again.

On a machine that is shared, storage or the host stands still for a second now and then, and a run that this falls into
says little: its interval is several times as wide as others'. A machine whose intervals are all wide (writes come in
bursts) is not disturbed, so wide is what is wide for this machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from statistics import median

from selfscale.exploring.plan import Step
from selfscale.measure import Point

DISTURBED_FRAC = 0.15
"""Half-width over throughput up to which no run counts as disturbed; three times the target of the stop rule..."""
DISTURBED_FACTOR = 3.0
"""... and times the median of the points so far that it has to be above as well."""
POINTS_MIN = 8
"""Points after which it is known what is usual."""


def undisturbed(measure: Callable[[Step], Point], known: Iterable[Point] = ()) -> Callable[[Step], Point]:
    """The same as `measure`, but of a disturbed run and a second one that with the narrower interval.

    Which one that is does not depend on what is expected of the workload. Its ``cost_s`` is that of both, and it tells
    what the other one said. There is no second run where the step's budget does not pay for it. What is usual is known
    from points before, those of an interrupted run that is resumed among them.
    """
    widths = [width for point in known if (width := _width(point)) < math.inf]

    def step(request: Step) -> Point:
        point = measure(request)
        width = _width(point)
        usual = median(widths) if len(widths) >= POINTS_MIN else math.inf
        disturbed = max(DISTURBED_FRAC, DISTURBED_FACTOR * usual) < width < math.inf
        if disturbed and 2 * point.cost_s <= request.left_s:
            kept, put_aside = sorted((point, measure(request)), key=_width)
            point = replace(
                kept,
                cost_s=kept.cost_s + put_aside.cost_s,
                disturbed_bytes_per_s=put_aside.throughput_bytes_per_s,
            )
        if width < math.inf:
            widths.append(width)
        return point

    return step


def _width(point: Point) -> float:
    """Half-width of the 95 % interval over the throughput; infinite where there is none."""
    if point.throughput_bytes_per_s <= 0:
        return math.inf
    return point.ci95_half_width_bytes_per_s / point.throughput_bytes_per_s

# SPDX-License-Identifier: Apache-2.0
"""Turns the points of a profile into how far the machine went astray meanwhile: focal points are measured again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from selfscale.measure import Point
from selfscale.profile import Region


def drift_of(points: Sequence[Point], regions: Sequence[Region]) -> dict[str, Any]:
    """Per region: throughputs of its focal point, whatever it was measured for, their spread, and last to first."""
    found = []
    for index, region in enumerate(regions):
        values = [point.throughput_bytes_per_s for point in points if point.workload == region.focal]
        if len(values) < 2 or min(values) <= 0:
            continue
        mean = sum(values) / len(values)
        found.append(
            {
                "region": index,
                "throughput_bytes_per_s": values,
                "spread": (max(values) - min(values)) / mean,
                "last_to_first": values[-1] / values[0] - 1,
            }
        )
    return {"reference_points": found}

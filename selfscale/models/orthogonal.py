# SPDX-License-Identifier: Apache-2.0
"""Turns an orthogonal sample into any workload's throughput by interpolation between its neighbours (thesis 5.4).

As published: evenly spaced values of every parameter, all combinations, multi-linear interpolation of the throughput.
The axes are those of every other model, logarithmic for uniqueBytes, sizeMean and processNum. A workload beyond the
sample takes the value of its nearest face.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

import numpy as np

from characterize.errors import FlextraceError
from characterize.workload import FIELD_OF, Workload
from selfscale.measure import Point
from selfscale.measuring.measurable_sizes import feasible
from selfscale.models.measured import LOGARITHMIC, beyond, columns, region_of
from selfscale.models.predicted import THAT_END, predictions
from selfscale.profile import Region

if TYPE_CHECKING:
    import pandas as pd

ROLE = "orthogonal"


class OrthogonalModel:
    """Multi-linear interpolation on a grid of measured workloads."""

    name = "orthogonal"

    def fit(self, points: Sequence[Point], regions: Sequence[Region]) -> Self:
        """Put the points of role ``orthogonal`` on a grid.

        A node whose sizeMean does not fit into a file was measured with the largest that does
        (`selfscale.measuring.measurable_sizes.feasible`), and has that throughput.

        Raises
        ------
        FlextraceError
            There is no orthogonal sample, or a part of it is missing.
        """
        from scipy.interpolate import RegularGridInterpolator  # noqa: PLC0415 (seconds, and only this model needs it)

        self._regions = list(regions)
        chosen = {
            point.workload: index
            for index, point in enumerate(points)
            if point.role == ROLE and point.throughput_bytes_per_s > 0
        }
        self._points_used = sorted(chosen.values())
        if not chosen:
            raise FlextraceError("there is no orthogonal sample: measure one with 'flextrace validate'")
        roomy = Workload(
            unique_bytes=max(workload.unique_bytes for workload in chosen),
            process_num=min(workload.process_num for workload in chosen),
            **dict.fromkeys(("seq_frac", "read_frac", "size_mean"), 0.0),
        )
        largest = [w for w in chosen if (w.unique_bytes, w.process_num) == (roomy.unique_bytes, roomy.process_num)]
        self._levels = {
            name: sorted({getattr(w, field) for w in (largest if name == "sizeMean" else chosen)})
            for name, field in FIELD_OF.items()
        }
        shape = [len(levels) for levels in self._levels.values()]
        values = np.empty(shape)
        missing = set()
        for place in np.ndindex(*shape):
            coordinates = [levels[i] for levels, i in zip(self._levels.values(), place, strict=True)]
            wanted = feasible(Workload(**dict(zip(FIELD_OF.values(), coordinates, strict=True))))
            if wanted in chosen:
                values[place] = points[chosen[wanted]].throughput_bytes_per_s
            else:
                missing.add(wanted)
        if missing:
            raise FlextraceError(
                f"{len(missing)} of {len(missing) + len(chosen)} points of the orthogonal sample are missing: finish "
                "it with 'flextrace validate --resume'; those that moved nothing count as missing"
            )
        axes = [_axis(name, np.array(levels)) for name, levels in self._levels.items()]
        # A parameter with one level has no axis to interpolate on.
        self._varied = [name for name, levels in self._levels.items() if len(levels) > 1]
        self._interpolate = RegularGridInterpolator(
            [axis for axis in axes if len(axis) > 1], values.reshape([n for n in shape if n > 1]), method="linear"
        )
        return self

    def again(self) -> OrthogonalModel:
        """The same model, not fitted."""
        return OrthogonalModel()

    def predict(self, workloads: Sequence[Workload]) -> pd.DataFrame:
        """Interpolate; an interpolation knows nothing of its own error, so its interval has no width."""
        table = columns(workloads)
        places = []
        for name in self._varied:
            levels = self._levels[name]
            places.append(_axis(name, np.clip(getattr(table, FIELD_OF[name]), levels[0], levels[-1])))
        ranges = {name: (levels[0], levels[-1]) for name, levels in self._levels.items()}
        return predictions(
            self._interpolate(np.column_stack(places)),
            0.0,
            regions=[region_of(self._regions, workload.unique_bytes) for workload in workloads],
            points_used=self._points_used,
            outside=[beyond(ranges, workload) for workload in workloads],
            said=THAT_END,
        )


def _axis(parameter: str, values: np.ndarray) -> np.ndarray:
    return np.log(values) if parameter in LOGARITHMIC else values

# SPDX-License-Identifier: Apache-2.0
"""Turns scattered measurements into a product of single parameter functions, found by least squares.

ln(throughput) = constant + a cubic of every parameter: what the thesis assumes (5.2, shape independence), without its
curves, for points that lie anywhere and for any parameters. `PairwiseModel` adds the products of two parameters, which
the thesis leaves out.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

import numpy as np

from characterize.errors import FlextraceError
from selfscale.measure import Point
from selfscale.models.axes import Axes
from selfscale.models.predicted import THAT_END, predictions
from selfscale.profile import Region

if TYPE_CHECKING:
    import pandas as pd

    from characterize.workload import Workload

DEGREE = 3
POINTS_PER_TERM = 2
RIDGE = 1e-6
"""Keeps a regression regular where parameters vary together."""


class AdditiveModel:
    """ln(throughput) = constant + sum of cubics.

    Parameters
    ----------
    degree : int
        1 for straight lines.
    """

    name = "additive"
    pairs = False

    def __init__(self, degree: int = DEGREE):
        self._degree = degree

    def fit(self, points: Sequence[Point], regions: Sequence[Region]) -> Self:
        """Least squares; the degree is lowered until there are two points for every term.

        Raises
        ------
        FlextraceError
            There are too few points.
        """
        self._used = [index for index, point in enumerate(points) if point.throughput_bytes_per_s > 0]
        workloads = [points[index].workload for index in self._used]
        if not workloads:
            raise FlextraceError("there is no point with a throughput")
        self.axes = Axes(workloads)
        for degree in range(self._degree, 0, -1):
            self._degree = degree
            terms = self._terms(self.axes.places(workloads))
            if POINTS_PER_TERM * terms.shape[1] <= len(workloads):
                break
        else:
            raise FlextraceError(
                f"{len(workloads)} points are too few for the {self.name} model of {len(self.axes.names)} parameters: "
                f"measure {POINTS_PER_TERM * terms.shape[1]} or more"
            )
        target = np.log([points[index].throughput_bytes_per_s for index in self._used])
        self._inverse = np.linalg.inv(terms.T @ terms + RIDGE * len(terms) * np.eye(terms.shape[1]))
        self._weights = self._inverse @ terms.T @ target
        self.residual = target - terms @ self._weights
        self._variance = float(self.residual @ self.residual) / (len(terms) - terms.shape[1])
        return self

    def again(self) -> AdditiveModel:
        """The same model, not fitted."""
        return type(self)()

    def log_throughput(self, workloads: Sequence[Workload]) -> tuple[np.ndarray, np.ndarray]:
        """ln(bytes per s) and its standard deviation, shape (n,) each."""
        terms = self._terms(self.axes.places(workloads))
        leverage = np.einsum("ij,jk,ik->i", terms, self._inverse, terms)
        return terms @ self._weights, np.sqrt(self._variance * (1 + leverage))

    def predict(self, workloads: Sequence[Workload]) -> pd.DataFrame:
        """The regression; what lies outside takes the value of the nearest end."""
        return self.rows(workloads, *self.log_throughput(workloads))

    def rows(self, workloads: Sequence[Workload], log_throughput: np.ndarray, sigma: np.ndarray) -> pd.DataFrame:
        """A table as `selfscale.models.Model.predict` gives it, from ln(bytes per s) and its standard deviation."""
        return predictions(
            np.exp(log_throughput),
            sigma,
            regions=[0] * len(workloads),
            points_used=self._used,
            outside=[self.axes.outside(workload) for workload in workloads],
            said=THAT_END,
        )

    def _terms(self, places: np.ndarray) -> np.ndarray:
        """Powers of every place, no more than its levels can tell apart, and products of two; shape (n, terms)."""
        columns = [np.ones(len(places))]
        for index, levels in enumerate(self.axes.levels):
            columns += [places[:, index] ** power for power in range(1, min(self._degree, levels - 1) + 1)]
        if self.pairs:
            columns += [places[:, i] * places[:, j] for i, j in itertools.combinations(range(places.shape[1]), 2)]
        return np.column_stack(columns)


class PairwiseModel(AdditiveModel):
    """The same with products of two parameters."""

    name = "pairwise"
    pairs = True

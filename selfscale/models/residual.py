# SPDX-License-Identifier: Apache-2.0
"""Turns a formula and points into the formula and a Gaussian process over what it misses: what `learned` and
`traffic` have in common.

The residual is a smooth function of the five parameters and of the shares of its time that a request spends at the
device. These are what tells the regions apart: they are nothing in the cache and rise within few per cent of
uniqueBytes behind the border.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np

from characterize.errors import FlextraceError
from characterize.workload import Workload
from selfscale.measure import Point
from selfscale.models.measured import Columns, Measured, beyond, columns, drawn, measured, ranges_of, region_of
from selfscale.models.one_thread import one_thread
from selfscale.models.predicted import EXTRAPOLATED, predictions
from selfscale.profile import Region

if TYPE_CHECKING:
    import pandas as pd

POINTS_MIN = 16
PHYSICS_ERROR = 0.12
"""Standard deviation of ln(throughput) that a formula is trusted with beside the noise of a point: what it misses
varies by as much from place to place. What it misses at points that its constants were fitted to is less than that."""
LENGTH, ROUGH_ERROR = 1.0, 0.05
"""How far what a formula misses at one place tells of others, each axis being about two wide; and the standard
deviation of what it misses that no other place tells of."""
FITS, UNEXPECTED = 2, 3.0
"""A point that the others expect this many standard deviations elsewhere counts as that noisy in the second fit."""
SIGMA_MAX = 2.0
"""Of ln(throughput), by what is not known of the constants: at a step of the formula its derivative says more."""


class FormulaValues(NamedTuple):
    """What a formula says of n workloads.

    Attributes
    ----------
    log_throughput : ndarray, shape (n,)
        ln(bytes per s).
    device_shares : ndarray, shape (n, k)
        Of the time at device and processors, what is the device's: as a whole, or by direction.
    """

    log_throughput: np.ndarray
    device_shares: np.ndarray


class Formula(Protocol):
    """A formula of ln(throughput) with its constants found."""

    @property
    def covariance(self) -> np.ndarray:
        """What points and guesses leave open of the constants."""

    @property
    def border_bytes(self) -> float:
        """Where reads begin to miss."""

    def at(self, table: Columns) -> FormulaValues:
        """What it says of n workloads."""

    def explained(self, data: Measured) -> np.ndarray:
        """What it says of ln(throughput) of n points, with what else was measured of their runs, shape (n,)."""

    def sensitivity(self, table: Columns) -> np.ndarray:
        """Derivative of ln(throughput) by the constants, shape (n, constants)."""


class LogThroughput(NamedTuple):
    """What is known of n workloads.

    Attributes
    ----------
    log_throughput : ndarray, shape (n,)
        ln(bytes per s).
    sigma : ndarray, shape (n,)
        Its standard deviation.
    """

    log_throughput: np.ndarray
    sigma: np.ndarray


FormulaType = TypeVar("FormulaType", bound=Formula)


class ResidualModel(ABC, Generic[FormulaType]):
    """ln(throughput) = formula + Gaussian process.

    Parameters
    ----------
    start : ResidualModel, optional
        Fitted to nearly the same points: constants are searched from there.
    """

    name = "residual"

    def __init__(self, start: ResidualModel[FormulaType] | None = None):
        self._start = start

    @abstractmethod
    def fit_formula(self, points: Sequence[Point], data: Measured, regions: Sequence[Region]) -> FormulaType:
        """The formula with its constants found; `_start`, if there is one, is a model of the same kind."""

    @one_thread
    def fit(self, points: Sequence[Point], regions: Sequence[Region]) -> Self:
        """Fit the formula, then the residual.

        Raises
        ------
        FlextraceError
            There are too few points, or the formula lacks what it needs.
        """
        from sklearn.gaussian_process import GaussianProcessRegressor  # noqa: PLC0415 (a second, and only these models)
        from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel  # noqa: PLC0415

        data = measured(points)
        if len(data.indices) < POINTS_MIN:
            raise FlextraceError(
                f"{len(data.indices)} points are too few for the {self.name} model: measure {POINTS_MIN} or more"
            )
        self._regions = list(regions)
        self._points_used = data.indices.tolist()
        self._ranges = ranges_of([points[index].workload for index in data.indices])
        self.formula = self.fit_formula(points, data, regions)
        residual = data.log_throughput - self.formula.explained(data)
        features = self._features(data.columns, self.formula.at(data.columns).device_shares)
        kernel = ConstantKernel(PHYSICS_ERROR**2) * Matern(LENGTH, nu=2.5) + WhiteKernel(ROUGH_ERROR**2)
        chosen = drawn(len(residual))
        features, residual, noise = features[chosen], residual[chosen], data.noise[chosen]
        for _ in range(FITS):
            self._process = GaussianProcessRegressor(kernel, alpha=noise**2, optimizer=None).fit(features, residual)
            noise = np.maximum(noise, _unexpected(self._process))
        return self

    @property
    def left_out_error(self) -> float:
        """Mean of |ln(predicted / measured)| of a point that the residual was not fitted to; the formula was."""
        return float(np.abs(_left_out(self._process)[0]).mean())

    def _features(self, table: Columns, device_shares: np.ndarray) -> np.ndarray:
        """Places in the space of the residual, shape (n, 5 + k), each axis about two wide."""
        return np.column_stack(
            [
                np.log(table.unique_bytes / self.formula.border_bytes),
                2 * table.seq_frac,
                2 * table.read_frac,
                np.log(table.size_mean) / 2,
                np.log(table.process_num),
                2 * device_shares,
            ]
        )

    def covariance(self, workloads: Sequence[Workload]) -> np.ndarray:
        """What is not known of ln(throughput) of n workloads, shape (n, n): of the constants and of the residual."""
        table = columns(workloads)
        by_constants = self._sensitivity(table)
        features = self._features(table, self.formula.at(table).device_shares)
        residual = self._process.predict(features, return_cov=True)[1]
        return residual + by_constants @ self.formula.covariance @ by_constants.T

    def _sensitivity(self, table: Columns) -> np.ndarray:
        """Of the formula, no more than `SIGMA_MAX` comes of it, shape (n, constants)."""
        by_constants = self.formula.sensitivity(table)
        sigma = np.sqrt(np.einsum("ij,jk,ik->i", by_constants, self.formula.covariance, by_constants))
        return by_constants / np.maximum(sigma / SIGMA_MAX, 1)[:, None]

    def estimate(self, table: Columns) -> LogThroughput:
        """Throughput, and what constants, residual and the noise of a measurement leave open of it."""
        values = self.formula.at(table)
        mean, sigma = self._process.predict(self._features(table, values.device_shares), return_std=True)
        by_constants = self._sensitivity(table)
        return LogThroughput(
            values.log_throughput + mean,
            np.sqrt(sigma**2 + np.einsum("ij,jk,ik->i", by_constants, self.formula.covariance, by_constants)),
        )

    def rows(self, workloads: Sequence[Workload], estimate: LogThroughput) -> pd.DataFrame:
        """What `Model.predict` returns, of an estimate that rests on the points that this model learned from."""
        return predictions(
            np.exp(estimate.log_throughput),
            estimate.sigma,
            regions=[region_of(self._regions, workload.unique_bytes) for workload in workloads],
            points_used=self._points_used,
            outside=[beyond(self._ranges, workload) for workload in workloads],
            said=EXTRAPOLATED,
        )

    def predict(self, workloads: Sequence[Workload]) -> pd.DataFrame:
        """Throughput with its interval."""
        return self.rows(workloads, self.estimate(columns(workloads)))


def _unexpected(process: Any) -> np.ndarray:
    """How far every point lies from what the others say of it, shape (n,); 0 where that is within its uncertainty."""
    error, sigma = _left_out(process)
    return np.where(np.abs(error) > UNEXPECTED * sigma, np.abs(error), 0.0)


def _left_out(process: Any) -> tuple[np.ndarray, np.ndarray]:
    """Error of what the others say of every point, and its standard deviation, shape (n,) each.

    Leaving one out of a Gaussian process: error = (K^-1 y)_i / (K^-1)_ii, variance = 1 / (K^-1)_ii.
    """
    from scipy.linalg import cho_solve  # noqa: PLC0415

    inverse = np.diag(cho_solve((process.L_, True), np.eye(len(process.L_))))
    return process.alpha_ / inverse, 1 / np.sqrt(inverse)

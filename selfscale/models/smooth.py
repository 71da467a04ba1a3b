# SPDX-License-Identifier: Apache-2.0
"""Turns scattered measurements into a product of powers of the parameters and a Gaussian process over the rest.

For measurements of anybody's with any parameters (research notes, E1). The mean of ln(throughput) is a straight line in
every parameter's axis: cubics made for larger errors, since what they bend the process has to bend back
(docs/decisions/0019-fit-elapsed-time-rank.md).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from selfscale.measure import Point
from selfscale.models.additive import AdditiveModel
from selfscale.models.measured import drawn, noise_of
from selfscale.models.one_thread import one_thread
from selfscale.profile import Region

if TYPE_CHECKING:
    import pandas as pd

    from characterize.workload import Workload


class SmoothModel:
    """ln(throughput) = sum of straight lines + Gaussian process.

    Parameters
    ----------
    start : SmoothModel, optional
        Of nearly the same points: its hyper-parameters are taken.
    """

    name = "smooth"

    def __init__(self, start: SmoothModel | None = None):
        self._start = start

    @one_thread
    def fit(self, points: Sequence[Point], regions: Sequence[Region]) -> Self:
        """Fit the mean, then the rest.

        Raises
        ------
        FlextraceError
            There are too few points.
        """
        from sklearn.exceptions import ConvergenceWarning  # noqa: PLC0415 (a second, and only this model needs it)
        from sklearn.gaussian_process import GaussianProcessRegressor  # noqa: PLC0415
        from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel  # noqa: PLC0415

        self._mean = AdditiveModel(degree=1).fit(points, regions)
        used = [index for index, point in enumerate(points) if point.throughput_bytes_per_s > 0]
        chosen = drawn(len(used))
        workloads = [points[used[index]].workload for index in chosen]
        kernel: Any = ConstantKernel(0.1, (1e-4, 10.0)) * Matern(np.ones(len(self.parameters)), (0.1, 50.0), nu=2.5)
        kernel += WhiteKernel(1e-3, (1e-6, 0.3))
        optimizer: str | None = "fmin_l_bfgs_b"
        # Without the points that are left out a parameter may have one value only: then there is a length less.
        if self._start is not None and self._start.parameters == self.parameters:
            kernel, optimizer = self._start.found, None
        with warnings.catch_warnings():
            # A length at its bound says that the parameter has no influence on the rest.
            warnings.simplefilter("ignore", ConvergenceWarning)
            self._process = GaussianProcessRegressor(
                kernel,
                alpha=noise_of([points[used[index]] for index in chosen]) ** 2,
                optimizer=optimizer,
            ).fit(self._mean.axes.places(workloads), self._mean.residual[chosen])
        return self

    @property
    def parameters(self) -> list[str]:
        """Parameters that differ among the points."""
        return self._mean.axes.names

    @property
    def found(self) -> Any:
        """The kernel with its hyper-parameters."""
        return self._process.kernel_

    def again(self) -> SmoothModel:
        """The same model with the hyper-parameters found, not fitted."""
        return SmoothModel(self)

    def predict(self, workloads: Sequence[Workload]) -> pd.DataFrame:
        """Mean and rest; what lies outside takes the value of the nearest end."""
        rest, sigma = self._process.predict(self._mean.axes.places(workloads), return_std=True)
        return self._mean.rows(workloads, self._mean.log_throughput(workloads)[0] + rest, sigma)

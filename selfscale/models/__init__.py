# SPDX-License-Identifier: Apache-2.0
"""One file per way of turning measured points into the throughput of a workload that was not measured.

A model is fitted to points and regions and then asked for workloads; `MODELS` says which file holds which. Which of
them a profile is predicted with is not decided here but by their errors, in `selfscale.predicting.cross_validation`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, Self

from characterize.errors import FlextraceError
from characterize.workload import Workload

if TYPE_CHECKING:
    import pandas as pd

    from selfscale.measure import Point
    from selfscale.profile import Region


class Model(Protocol):
    """What every model of this package has."""

    name: str

    def fit(self, points: Sequence[Point], regions: Sequence[Region]) -> Self:
        """Take what is needed from the points that may be learned from; returns the model itself.

        Raises
        ------
        FlextraceError
            The points are too few, or not the ones that the model needs.
        """

    def again(self) -> Model:
        """A model of the same kind, not fitted, that may start from what this one took long to find."""

    def predict(self, workloads: Sequence[Workload]) -> pd.DataFrame:
        """Estimate workloads.

        Returns
        -------
        DataFrame
            One row per workload: ``throughput_bytes_per_s``; ``interval_low`` and ``interval_high``, nominal 90 %,
            bytes per s, of what the model itself knows to be uncertain; ``region`` (index); ``points_used`` (indices
            into the points); ``outside`` (names of parameters beyond the measured values); ``notes`` (list of str).
        """


MODELS = {
    "product": "selfscale.models.product:ProductModel",
    "orthogonal": "selfscale.models.orthogonal:OrthogonalModel",
    "utilization": "selfscale.models.utilization:UtilizationModel",
    "learned": "selfscale.models.learned:LearnedModel",
    "traffic": "selfscale.models.traffic:TrafficModel",
    "combined": "selfscale.models.combined:CombinedModel",
}
"""Where each model of a machine is; imported only when it is asked for."""
SIMULATING = ("traffic", "combined")
"""Those that need the environment of the profile."""
PARTS = {"combined": ("learned", "traffic")}
"""Those that are a mean of others, and of which; they may be given these, fitted."""
TABLE_MODELS = {
    "additive": "selfscale.models.additive:AdditiveModel",
    "pairwise": "selfscale.models.additive:PairwiseModel",
    "smooth": "selfscale.models.smooth:SmoothModel",
}
"""Those of a table of measurements with any parameters (``flextrace fit``)."""


def make_model(name: str, environment: Mapping[str, Any] | None = None, fitted_parts: Sequence[Model] = ()) -> Model:
    """A model by name, not fitted.

    Parameters
    ----------
    environment : mapping, optional
        What the profile says of where it was measured (`selfscale.profile.Profile.cache_environment`).
    fitted_parts : sequence of Model
        Those of `PARTS` in their order: the model of them is fitted, too.

    Raises
    ------
    FlextraceError
        There is no such model.
    """
    known = {**MODELS, **TABLE_MODELS}
    if name not in known:
        raise FlextraceError(f"there is no model {name!r}: choose one of {', '.join(sorted(known))}", 2)
    module, _, attribute = known[name].partition(":")
    make = getattr(importlib.import_module(module), attribute)
    arguments = [environment or {}] if name in SIMULATING else []
    return make(*arguments, *([tuple(fitted_parts)] if fitted_parts else []))

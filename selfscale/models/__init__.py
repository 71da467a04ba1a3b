# SPDX-License-Identifier: Apache-2.0
"""One file per way of turning a profile into the throughput of a workload that was not measured.

A model is fitted to a profile and then asked for workloads; `MODELS` says which file holds which.
"""

from __future__ import annotations

import importlib
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol, Self

from characterize.errors import FlextraceError
from characterize.workload import Workload
from selfscale.profile import Profile


@dataclass(frozen=True)
class Prediction:
    """An estimated throughput.

    Attributes
    ----------
    throughput_bytes_per_s : float
    interval_low, interval_high : float
        Nominal 90 % interval, bytes per s; what it covers stands in `extended_note`.
    model : str
    region : int
        Index of the profile's region whose curves were used.
    inside_range : bool
        Whether every parameter lies within the values measured on the curves used; `outside` names those that do not.
    points_used : list of int
        Indices into the profile's points.
    extended_note : str
        What the interval covers, and what the prediction takes for granted.
    """

    throughput_bytes_per_s: float
    interval_low: float
    interval_high: float
    model: str
    region: int
    inside_range: bool
    points_used: list[int] = field(default_factory=list)
    extended_note: str = ""
    outside: list[str] = field(default_factory=list)

    def as_document(self) -> dict[str, Any]:
        """The prediction as it stands in JSON."""
        return asdict(self)


class Model(Protocol):
    """What every model of this package has."""

    name: str

    def fit(self, profile: Profile) -> Self:
        """Take what is needed from a profile; returns the model itself.

        Raises
        ------
        FlextraceError
            The profile holds too little.
        """

    def predict(self, workload: Workload) -> Prediction:
        """Estimate one workload."""


MODELS = {"product": "selfscale.models.product:ProductModel"}
"""Where each model is; imported only when it is asked for."""


def make_model(name: str) -> Model:
    """A model by name, not fitted.

    Raises
    ------
    FlextraceError
        There is no such model.
    """
    if name not in MODELS:
        raise FlextraceError(f"there is no model {name!r}: choose one of {', '.join(sorted(MODELS))}", 2)
    module, _, attribute = MODELS[name].partition(":")
    return getattr(importlib.import_module(module), attribute)()

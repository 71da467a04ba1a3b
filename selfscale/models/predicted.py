# SPDX-License-Identifier: Apache-2.0
"""Turns what a model says of workloads into the table that every model returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from selfscale.models.measured import Z90

if TYPE_CHECKING:
    import pandas as pd

THAT_END, EXTRAPOLATED = "that end was taken", "extrapolated"
"""What models make of a parameter beyond the measured values."""


def predictions(
    throughput: np.ndarray,
    sigma: np.ndarray | float,
    *,
    regions: Sequence[int],
    points_used: list[int],
    outside: Sequence[Mapping[str, str]],
    said: str,
) -> pd.DataFrame:
    """The table of `selfscale.models.Model.predict`.

    Parameters
    ----------
    throughput : ndarray, shape (n,)
        Bytes per s.
    sigma : float or ndarray, shape (n,)
        Standard deviation of its logarithm.
    regions : sequence of int
        Index of every workload's.
    points_used : list of int
        Of all of them alike.
    outside : sequence of mapping
        Of every workload the parameters beyond the measured values, with how far in words.
    said : str
        What was made of these.
    """
    import pandas as pd  # noqa: PLC0415

    return pd.DataFrame(
        {
            "throughput_bytes_per_s": throughput,
            "interval_low": throughput * np.exp(-Z90 * sigma),
            "interval_high": throughput * np.exp(Z90 * sigma),
            "region": regions,
            "points_used": [points_used] * len(throughput),
            "outside": [list(names) for names in outside],
            "notes": [[f"{text}: {said}" for text in names.values()] for names in outside],
        }
    )

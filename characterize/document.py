# SPDX-License-Identifier: Apache-2.0
"""Turns numbers and tables of numpy and pandas into what JSON can hold; what has no meaning (NaN) becomes null."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd


def plain(value: Any) -> Any:
    """The same value of Python's own types: NaN and infinity None, a DataFrame a list of one object per row."""
    if isinstance(value, pd.DataFrame):
        return [plain(row) for row in value.to_dict("records")]
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, np.ndarray | list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value

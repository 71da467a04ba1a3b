# SPDX-License-Identifier: Apache-2.0
"""What is known of a part of a trace when it is merged into those before, and was not when it was counted."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from characterize.file_sizes import FileSizes


@dataclass
class Border:
    """What the parts before say of the requests behind them.

    Attributes
    ----------
    sizes : FileSizes
        Of the files where the part begins.
    request, fresh : ndarray of int64
        As from `characterize.touched.FreshBytes.merge`, once the summary of the whole trace has it.
    """

    sizes: FileSizes
    request: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    fresh: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))

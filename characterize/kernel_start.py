# SPDX-License-Identifier: Apache-2.0
"""Turns numba's slow first use into a faster one: it looks for SciPy's linear algebra, which no kernel here needs."""

from __future__ import annotations

import importlib
import sys


def start_kernels() -> None:
    """Load what numba needs for its first kernel, without SciPy, unless that is in use already.

    Looking for it takes numba 0.15 s of processor time. SciPy can be imported afterwards; kernels with ``np.dot`` and
    the like would not compile in this process.
    """
    if "scipy" in sys.modules:
        return
    # None stands for a module that is not there.
    sys.modules["scipy"] = None  # type: ignore[assignment]
    try:
        importlib.import_module("numba.np.arraymath")
    finally:
        del sys.modules["scipy"]

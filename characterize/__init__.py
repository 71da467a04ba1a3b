# SPDX-License-Identifier: Apache-2.0
"""Trace to numbers: reduce a trace to the five parameters of Chen 1992, chapter 3, and what stands beside them.

``characterize.open(path)`` gives a `Trace` with DataFrames; ``characterize.write(trace, path)`` is its reverse;
`characterize.characterization.characterize` makes all numbers. The names of this module are loaded when they are first
used, so that what needs no pandas (``flextrace record``) does not wait for it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from characterize.errors import FlextraceError

if TYPE_CHECKING:
    from characterize.trace import Trace, open, write

__all__ = ["FlextraceError", "Trace", "open", "write"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(importlib.import_module("characterize.trace"), name)
    raise AttributeError(f"module 'characterize' has no attribute {name!r}")

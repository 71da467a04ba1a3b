# SPDX-License-Identifier: Apache-2.0
"""Trace to numbers: the five parameters of Chen 1992, chapter 3, and what stands beside them."""

from characterize.errors import FlextraceError
from characterize.trace import Trace, open, write

__all__ = ["FlextraceError", "Trace", "open", "write"]

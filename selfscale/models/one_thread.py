# SPDX-License-Identifier: Apache-2.0
"""Lets a fit use one thread of linear algebra.

Its matrices are small. More threads gain nothing, and as they spin while they wait for each other, a fit beside another
program that computes took four times as long with two of them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def one_thread(fit: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """The same function, with one thread where it uses BLAS."""

    @functools.wraps(fit)
    def limited(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        # What is limited is what has been loaded.
        import sklearn.gaussian_process  # noqa: F401, PLC0415 (a second, and only some models need it)
        from threadpoolctl import threadpool_limits  # noqa: PLC0415

        with threadpool_limits(1, "blas"):
            return fit(*args, **kwargs)

    return limited

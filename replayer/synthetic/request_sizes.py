# SPDX-License-Identifier: Apache-2.0
"""Turns a mean and a family of distributions, or that of a trace, into request sizes whose sum is exact, for Willy.

Sizes are drawn stratified (one draw from each of n equal slices of the distribution, in random order) instead of
independently, so that also a short trace has the wanted mean and shape.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

Sizes = tuple[np.ndarray, np.ndarray]
"""Sizes in units, ascending, and the share of each."""
SizeFamily = Literal["binomial", "bernoulli", "fixed"]
SIZE_FAMILIES: tuple[str, ...] = get_args(SizeFamily)


def draw_sizes(
    family: str | Sizes, count: int, total_units: int, limit_units: int, generator: np.random.Generator
) -> np.ndarray:
    """Draw sizes in whole units, every one from 1 to `limit_units`, that sum up to `total_units`.

    Parameters
    ----------
    family : {"binomial", "bernoulli", "fixed"} or Sizes
        binomial: the thesis (3.4.1.2: "a binomial distribution with a mean of sizeMean"), whose number of trials it
        does not give; here 1 + Binomial(n, p) with p about 1/2, so that no request is empty.
        bernoulli: Chen & Patterson 1994, section 5 ("a Bernoulli distribution, with a coefficient of variation equal to
        1"). A Bernoulli variable has that coefficient at p = 1/2, but then half of the requests were empty; here two
        outcomes, of which the smaller is one unit and the larger and its probability follow from mean and coefficient.
        fixed: all alike, or the two sizes next to a mean that is not a whole number of units.
        Sizes: such a distribution, rounded to whole units.
    count : int
    total_units, limit_units : int
        ``count <= total_units <= count * limit_units``.

    Returns
    -------
    ndarray of int64, shape (count,)
    """
    mean = total_units / count
    sizes, weights = _distribution(family, mean, limit_units)
    cumulative = np.cumsum(weights)
    strata = (np.arange(count) + generator.random(count)) / count * cumulative[-1]
    drawn = sizes[np.minimum(np.searchsorted(cumulative, strata, side="right"), len(sizes) - 1)]
    drawn = generator.permutation(drawn)
    _settle(drawn, total_units - int(drawn.sum()), limit_units, generator)
    return drawn


def coefficient_of_variation(family: str | Sizes, mean: float, limit_units: int) -> float:
    """Standard deviation by mean of the distribution that `draw_sizes` draws from."""
    sizes, weights = _distribution(family, mean, limit_units)
    variance = np.average((sizes - mean) ** 2, weights=weights)
    return float(np.sqrt(max(variance, 0.0)) / mean)


def _distribution(family: str | Sizes, mean: float, limit: int) -> tuple[np.ndarray, np.ndarray]:
    """Possible sizes, ascending, and their probabilities."""
    if not isinstance(family, str):
        sizes, weights = family
        return np.clip(np.rint(sizes), 1, limit).astype(np.int64), weights
    if family == "binomial" and mean > 1:
        from scipy.stats import binom  # noqa: PLC0415 (slow to import)

        trials = min(int(np.ceil(2 * (mean - 1))), limit - 1)
        # Further off is no probability that a float can have (Hoeffding: exp(-2 x 20^2)).
        reach = 20 * np.sqrt(trials)
        sizes = np.arange(max(1, int(mean - reach)), min(trials + 1, int(mean + reach)) + 1)
        return sizes, binom.pmf(sizes - 1, trials, (mean - 1) / trials)
    if family == "bernoulli" and 1 < mean < limit:
        # d = larger - smaller, q = P(larger): q d = mean - 1 and q (1 - q) d^2 = mean^2.
        larger = min(1 + mean**2 / (mean - 1) + (mean - 1), float(limit))
        share = (mean - 1) / (larger - 1)
        sizes, weights = _neighbours(larger)
        return np.concatenate([[1], sizes]), np.concatenate([[1 - share], share * weights])
    return _neighbours(mean)


def _neighbours(size: float) -> tuple[np.ndarray, np.ndarray]:
    """The two whole numbers around a size, with the weights that give it on average."""
    low = int(size)
    return np.array([low, low + 1]), np.array([low + 1 - size, size - low])


def _settle(sizes: np.ndarray, missing: int, limit: int, generator: np.random.Generator) -> None:
    """Add (or take away) single units at random requests until nothing is missing."""
    step = 1 if missing > 0 else -1
    while missing:
        free = np.flatnonzero(sizes < limit if step > 0 else sizes > 1)
        chosen = generator.permutation(free)[: abs(missing)]
        sizes[chosen] += step
        missing -= step * len(chosen)

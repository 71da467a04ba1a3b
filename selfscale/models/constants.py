# SPDX-License-Identifier: Apache-2.0
"""Turns the errors of a formula into its constants: least squares on their logarithms, each held near a wide guess."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

HUBER = 4.0
"""Square of the number of standard deviations from which on an error counts linearly."""
STEP = 1e-4
EVALUATIONS_MAX = 60


class Guess(NamedTuple):
    """What a constant is thought to be before anything was measured: its logarithm is normal around it."""

    value: float
    sigma: float


def logarithms(guesses: Mapping[str, Guess]) -> np.ndarray:
    """Of the values of k guesses, shape (k,)."""
    return np.log([guess.value for guess in guesses.values()])


@dataclass(frozen=True)
class Found:
    """Constants that errors were made small with.

    Attributes
    ----------
    constants : ndarray, shape (k,)
        Their natural logarithms.
    covariance : ndarray, shape (k, k)
        What errors and guesses leave open of them (Laplace's approximation).
    cost : float
        Half the sum of the squared errors, those of the guesses included.
    """

    constants: np.ndarray
    covariance: np.ndarray
    cost: float


def find_constants(
    errors_at: Callable[[np.ndarray], np.ndarray], guesses: Mapping[str, Guess], start: np.ndarray
) -> Found:
    """Search from a start for the constants with the smallest errors.

    Parameters
    ----------
    errors_at : callable
        Takes constants of shape (k,), or sets of them, shape (k, sets, 1), and returns n errors in standard deviations,
        shape (n,) or (sets, n).
    guesses : mapping of str to Guess
        Of the k constants.
    start : ndarray, shape (k,)
    """
    from scipy.optimize import least_squares  # noqa: PLC0415

    guess, sigma = logarithms(guesses), np.array([guess.sigma for guess in guesses.values()])
    result = least_squares(
        lambda constants: np.concatenate([_robust(errors_at(constants)), (constants - guess) / sigma]),
        start,
        lambda constants: np.concatenate(
            [derivative(lambda sets: _robust(errors_at(sets)), constants), np.diag(1 / sigma)]
        ),
        x_scale=sigma,
        max_nfev=EVALUATIONS_MAX,
    )
    # The rows of the guesses make it regular.
    return Found(result.x, np.linalg.inv(result.jac.T @ result.jac), float(result.cost))


def derivative(values_at: Callable[[np.ndarray], np.ndarray], constants: np.ndarray) -> np.ndarray:
    """Of n values (ln(throughput) of workloads, errors of points) by the logarithms of k constants, shape (n, k).

    Parameters
    ----------
    values_at : callable
        Takes sets of constants, shape (k, sets, 1), and returns shape (sets, n): all at once, an axis for the sets
        before that of the workloads, since a prediction is to take 10 ms and a fit asks for hundreds of derivatives.
    """
    steps = STEP * np.eye(len(constants))
    moved = np.hstack([constants[:, None] + steps, constants[:, None] - steps])
    values = values_at(moved[:, :, None])
    return ((values[: len(steps)] - values[len(steps) :]) / (2 * STEP)).T


def _robust(error: np.ndarray) -> np.ndarray:
    """Pseudo-Huber: a disturbed point pulls with a bounded force."""
    return np.sign(error) * np.sqrt(2 * HUBER * (np.sqrt(1 + error**2 / HUBER) - 1))

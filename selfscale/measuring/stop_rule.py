# SPDX-License-Identifier: Apache-2.0
"""Turns the interval series of a running measurement into "stop now" and into a throughput with its interval.

The default rule cuts off the transient by MSER-5, guards against drift, and stops when the 95 % confidence half-width
(batch means, so that autocorrelation does not feign precision) is within a target. Lee's raidPerf rule (1993, 3.2) is
there by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

CONFIDENCE, RAIDPERF = "confidence", "raidperf"
TARGET = 0.05
"""95 % half-width of the throughput, as a share of it, at which a measurement stops (design.md section 5)."""
MSER_BATCH = 5
BATCHES_MIN, BATCHES_MAX = 8, 32
DRIFT_T = 2.5
"""A slope counts as drift when it is this many standard errors from none..."""
DRIFT_EXCURSION = 0.05
"""... and its line rises or falls by more than this share of the mean over the window (SNIA PTS allows 0.1)."""


@dataclass(frozen=True)
class SeriesThroughput:
    """What a series says of the throughput.

    Attributes
    ----------
    bytes_per_s : float
        Bytes over time of the intervals from `first` on.
    half_width_95, half_width_90 : float
        Confidence half-widths, bytes per s; infinite with too few intervals.
    steady : bool
        Whether the rule was met.
    reason : str
        Why it was not; empty if it was.
    first : int
        Index of the first interval behind the transient.
    seconds : float
        Length of the window from `first` to the end.
    """

    bytes_per_s: float
    half_width_95: float
    half_width_90: float
    steady: bool
    reason: str
    first: int
    seconds: float


def mser5(rates: np.ndarray) -> int:
    """Length of the initial transient by MSER-5.

    The series is averaged in batches of five; the cut is where the standard error of the mean of what remains is least
    (White 1997; research C). The last five batches are never candidates, since a handful of values may agree by chance.

    Parameters
    ----------
    rates : ndarray, shape (n,)
        Throughput of every interval.

    Returns
    -------
    int
        Number of intervals to cut. Beyond ``n / 2`` the cut means that no steady state was reached.
    """
    batches = len(rates) // MSER_BATCH
    if batches <= MSER_BATCH:
        return 0
    # Cut from the front only, so that the newest intervals always take part.
    remainder = len(rates) - batches * MSER_BATCH
    means = rates[remainder:].reshape(batches, MSER_BATCH).mean(axis=1)
    remaining = np.arange(batches, 0, -1)
    total = np.cumsum(means[::-1])[::-1]
    squares = np.cumsum((means**2)[::-1])[::-1]
    statistic = (squares - total**2 / remaining) / remaining**2
    cut = int(np.argmin(statistic[: batches - MSER_BATCH]))
    return cut * MSER_BATCH + remainder if cut else 0


def half_width(rates: np.ndarray, level: float = 0.95) -> float:
    """Confidence half-width of the mean of an autocorrelated series, by batch means.

    Batches grow until neighbouring batch means are no longer correlated; what correlation remains in the largest
    batches widens the interval by ``sqrt((1 + r) / (1 - r))``.

    Returns
    -------
    float
        In the unit of `rates`; infinite below 8 values.
    """
    from scipy.special import stdtrit  # noqa: PLC0415 (a second of import time that other verbs need not pay)

    count = _batches(len(rates))
    while True:
        if count < BATCHES_MIN:
            return math.inf
        length = len(rates) // count
        means = rates[len(rates) - count * length :].reshape(count, length).mean(axis=1)
        correlation = _lag_one(means)
        if correlation <= 1.645 / math.sqrt(count) or count // 2 < BATCHES_MIN:
            break
        count //= 2
    widening = math.sqrt((1 + correlation) / (1 - correlation)) if correlation > 0 else 1.0
    quantile = float(stdtrit(count - 1, 0.5 + level / 2))
    return quantile * float(means.std(ddof=1)) / math.sqrt(count) * widening


def _batches(values: int) -> int:
    """How many batches of equal length hold nearly all of so many values: fewer of more, rather than leave out half."""
    return values // max(1, math.ceil(values / BATCHES_MAX))


def _lag_one(values: np.ndarray) -> float:
    deviation = values - values.mean()
    power = float((deviation**2).sum())
    return min(0.95, float((deviation[1:] * deviation[:-1]).sum()) / power) if power > 0 else 0.0


def drifts(rates: np.ndarray) -> bool:
    """Whether a straight line through the series rises or falls by more than chance and more than it may."""
    count = _batches(len(rates))
    length = len(rates) // max(1, count)
    means = rates[len(rates) - count * length :].reshape(count, length).mean(axis=1)
    mean = float(means.mean())
    if count < BATCHES_MIN or mean <= 0:
        return False
    x = np.arange(count) - (count - 1) / 2
    slope = float(x @ means / (x @ x))
    residual = means - mean - slope * x
    # The residual's correlation hides in the batch means as it does in the half-width.
    correlation = max(0.0, _lag_one(residual))
    error = math.sqrt(float(residual @ residual) / (count - 2) / float(x @ x) * (1 + correlation) / (1 - correlation))
    return abs(slope) * (count - 1) / mean > DRIFT_EXCURSION and abs(slope) > DRIFT_T * error


class StopRule(Protocol):
    """What `selfscale.measure` needs of a rule: fed with intervals, it says when to stop and what was measured."""

    def add(self, seconds: float, moved_bytes: float, requests: float) -> bool:
        """Take one interval; True to stop."""

    def estimate(self) -> SeriesThroughput:
        """The throughput from what was added so far."""


@dataclass
class _Series:
    seconds: list[float] = field(default_factory=list)
    moved_bytes: list[float] = field(default_factory=list)
    requests: list[float] = field(default_factory=list)

    def add(self, seconds: float, moved_bytes: float, requests: float) -> None:
        if seconds > 0:
            self.seconds.append(seconds)
            self.moved_bytes.append(moved_bytes)
            self.requests.append(requests)

    def rates(self) -> np.ndarray:
        return np.asarray(self.moved_bytes) / np.asarray(self.seconds)

    def window(self, first: int) -> tuple[float, float]:
        """Bytes and seconds from interval `first` to the end."""
        return math.fsum(self.moved_bytes[first:]), math.fsum(self.seconds[first:])


class ConfidenceRule:
    """Stop when transient and drift are gone and the 95 % half-width is within the target (design.md section 5).

    Parameters
    ----------
    target : float
        Half-width as a share of the throughput.
    min_seconds : float
        Least length of the window behind the transient.
    settle_bytes : float
        The window begins only after this many bytes were moved (what the page cache absorbs before writes cost what
        they cost; see `selfscale.measure.settle_bytes`).
    """

    def __init__(self, target: float = TARGET, min_seconds: float = 1.0, settle_bytes: float = 0.0):
        self.target = target
        self.min_seconds = min_seconds
        self.settle_bytes = settle_bytes
        self._series = _Series()
        self._settled_at: int | None = None if settle_bytes > 0 else 0
        self._moved = 0.0

    def add(self, seconds: float, moved_bytes: float, requests: float) -> bool:
        """Take one interval; True to stop."""
        self._series.add(seconds, moved_bytes, requests)
        self._moved += moved_bytes
        count = len(self._series.seconds)
        if self._settled_at is None:
            if self._moved < self.settle_bytes:
                return False
            self._settled_at = count
        # Looking at every interval would make chance agreement likelier.
        if count - self._settled_at < BATCHES_MIN or count % MSER_BATCH:
            return False
        return self.estimate().steady

    def estimate(self) -> SeriesThroughput:
        """The throughput behind the transient; not steady says why."""
        count = len(self._series.seconds)
        if not count:
            return SeriesThroughput(0.0, math.inf, math.inf, False, "nothing was measured", 0, 0.0)
        rates = self._series.rates()
        settled = self._settled_at is not None and count - self._settled_at >= max(BATCHES_MIN, count // 4)
        # A run that ended too early is not steady anyway; its later half is nearest to what it would have become.
        start = (self._settled_at or 0) if settled else count // 2
        cut = mser5(rates[start:])
        transient = cut > (count - start) / 2
        first = start + (0 if transient else cut)
        window = rates[first:]
        moved_bytes, seconds = self._series.window(first)
        mean = moved_bytes / seconds
        half_95, half_90 = half_width(window, 0.95), half_width(window, 0.90)
        reason = ""
        if self._settled_at is None or self._settled_at >= count:
            reason = "the page cache was still absorbing writes"
        elif transient:
            reason = "the transient had not ended"
        elif not settled or seconds < self.min_seconds or not math.isfinite(half_95):
            reason = "too short"
        elif drifts(window):
            reason = "the throughput drifts"
        elif mean <= 0 or half_95 > self.target * mean:
            reason = f"the 95 % half-width is {half_95 / mean:.0%} of the throughput" if mean > 0 else "nothing moved"
        return SeriesThroughput(mean, half_95, half_90, not reason, reason, first, seconds)


class RaidPerfRule:
    """Lee's rule: the throughput since the start changed by less than 1 % over two measurement intervals in a row.

    "Each successive measurement interval contains twenty percent more requests than the previous interval" (Lee 1993,
    3.2). Nothing is cut off, as in raidPerf; the half-widths are those of `half_width` over the whole series, for
    comparison only.

    Parameters
    ----------
    first_requests : float
        Requests in the first measurement interval.
    """

    CHANGE = 0.01
    GROWTH = 1.2

    def __init__(self, first_requests: float = 1000.0):
        self._length = first_requests
        self._series = _Series()
        self._in_interval = 0.0
        self._last_rate: float | None = None
        self._calm = 0

    def add(self, seconds: float, moved_bytes: float, requests: float) -> bool:
        """Take one sampling interval; True to stop."""
        self._series.add(seconds, moved_bytes, requests)
        self._in_interval += requests
        if self._in_interval >= self._length:
            self._in_interval = 0.0
            self._length *= self.GROWTH
            moved, elapsed = self._series.window(0)
            rate = moved / elapsed if elapsed else 0.0
            calm = self._last_rate is not None and abs(rate - self._last_rate) < self.CHANGE * self._last_rate
            self._calm = self._calm + 1 if calm else 0
            self._last_rate = rate
        return self._calm >= 2

    def estimate(self) -> SeriesThroughput:
        """The throughput since the start."""
        moved, seconds = self._series.window(0)
        if not seconds:
            return SeriesThroughput(0.0, math.inf, math.inf, False, "nothing was measured", 0, 0.0)
        rates = self._series.rates()
        steady = self._calm >= 2
        reason = "" if steady else "the running throughput still changed by 1 % or more"
        return SeriesThroughput(moved / seconds, half_width(rates), half_width(rates, 0.9), steady, reason, 0, seconds)


RULES: dict[str, Callable[[float, float, float], StopRule]] = {
    CONFIDENCE: ConfidenceRule,
    RAIDPERF: lambda target, min_seconds, settle_bytes: RaidPerfRule(),
}
"""Rules by name: ``(target, min_seconds, settle_bytes) -> StopRule``."""


def stopping_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """``rule`` and ``target`` that the points of a profile were measured with; older ones do not say, and had these."""
    return {"rule": settings.get("stop_rule", CONFIDENCE), "target": settings.get("target", TARGET)}

# SPDX-License-Identifier: Apache-2.0
"""Turns the uniqueBytes curve into performance regions: where the storage hierarchy's next level takes over.

The thesis's heuristic (4.5, figure 4.6) on logarithmic axes, see
docs/decisions/0004-regions-on-log-axes.md: a border is where the slope lies below the curve's average slope.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

DROP_MIN = 1.6
"""A fall by less than this factor is no border: noise, not another level of storage."""
APART = 1.5
"""Borders that are closer make no region between them; what misses cost moves the falls of workloads by less."""
CACHED_DEVICE_FRAC = 0.01
"""Below this share of bytes from and to storage a point is served by the page cache (measured: up to 0.002 while the
working set fits, from 1 on as soon as it does not)."""


@dataclass(frozen=True)
class Border:
    """A fall of the uniqueBytes curve.

    Attributes
    ----------
    good_bytes : float
        Largest measured uniqueBytes that performs like the region below the border.
    bad_bytes : float
        Smallest measured one above it that does not.
    threshold : float
        Throughput that separates both, bytes per s: the middle between the top and the foot of the fall.
    """

    good_bytes: float
    bad_bytes: float
    threshold: float

    @property
    def edges(self) -> tuple[float, float]:
        """Measured uniqueBytes before and behind it."""
        return self.good_bytes, self.bad_bytes

    def explained_by(self, caches_bytes: Sequence[float]) -> bool:
        """Whether caches that other points showed end there; of two that make one fall, its middle is between them."""
        return bool(caches_bytes) and (
            self.good_bytes / APART <= max(caches_bytes) and min(caches_bytes) <= self.bad_bytes * APART
        )


def log_slopes(x: np.ndarray, throughput: np.ndarray) -> np.ndarray:
    """Slope of every interval of the curve on logarithmic axes, shape (n - 1,)."""
    return np.diff(np.log(throughput)) / np.diff(np.log(x))


def last_cached(device_frac: np.ndarray) -> int:
    """Index of the point from which on storage takes part, so that a fall before it is one of the processor's caches.

    Those are too small for a border of storage, but a working set that leaves them may cost a factor of three, which
    is more than some devices cost behind it.

    Parameters
    ----------
    device_frac : ndarray, shape (n,)
        Of the uniqueBytes curve, in ascending order; NaN where unknown.

    Returns
    -------
    int
        Of the last point of the row of cached ones that the curve begins with; 0 if there is none, and where no point
        reached storage as far as the kernel counts it (it does not for tmpfs and some network file systems).
    """
    uncached = np.flatnonzero(~(device_frac < CACHED_DEVICE_FRAC))
    return max(0, int(uncached[0]) - 1) if len(uncached) else 0


def find_borders(x: np.ndarray, throughput: np.ndarray, device_frac: np.ndarray | None = None) -> list[Border]:
    """Borders of the performance regions, from small to large uniqueBytes.

    Neighbouring intervals whose slope is below the average slope of the curve are one fall. It is a border if the
    throughput falls by `DROP_MIN` over it. Within the fall, the border lies between the last point at the top
    and the first at the foot, told apart by the middle between the throughputs of top and foot: with a share m of
    requests that miss, throughput is 1 / (hit + m x (miss - hit)), which is halved as soon as m reaches hit / miss,
    so the middle is crossed within few per cent of the size of the cache when misses cost much.

    Parameters
    ----------
    x, throughput : ndarray, shape (n,)
        The uniqueBytes curve, x ascending.
    device_frac : ndarray, shape (n,), optional
        Bytes from and to storage over bytes moved, NaN where unknown. A fall begins where storage takes part.

    Returns
    -------
    list of Border
        Empty for a flat curve (a raw device, figure 4.13, or a machine whose cache was not filled).
    """
    positive = throughput > 0
    x, throughput = x[positive], throughput[positive]
    if len(x) < 2:
        return []
    cached = 0 if device_frac is None else last_cached(device_frac[positive])
    average = np.log(throughput[-1] / throughput[0]) / np.log(x[-1] / x[0])
    # A little above the average, for a curve that is one fall from end to end, as between two points.
    falling = log_slopes(x, throughput) <= min(average * (1 - 1e-9), -1e-9)
    borders = []
    start = 0
    while start < len(falling):
        if not falling[start]:
            start += 1
            continue
        end = start
        while end < len(falling) and falling[end]:
            end += 1
        start = min(max(start, cached), end)
        top, foot = throughput[start], throughput[end]
        if top / foot >= DROP_MIN:
            threshold = float(top + foot) / 2
            crossing = start + int(np.argmax(throughput[start : end + 1] < threshold))
            borders.append(Border(float(x[crossing - 1]), float(x[crossing]), threshold))
        start = end
    return borders


def halfway(x: np.ndarray, throughput: np.ndarray) -> float:
    """Value at which the performance is halfway between its minimum and maximum (thesis 4.5: focal points).

    Interpolated on a logarithmic x axis; the first crossing from the left. The only value if there is one.
    """
    middle = (throughput.min() + throughput.max()) / 2
    above = throughput >= middle
    if len(x) < 2 or throughput.max() <= 1.05 * throughput.min():
        return float(np.sqrt(x[0] * x[-1]))
    crossings = np.flatnonzero(above[1:] != above[:-1])
    left = int(crossings[0])
    share = (middle - throughput[left]) / (throughput[left + 1] - throughput[left])
    return float(np.exp(np.log(x[left]) + share * np.log(x[left + 1] / x[left])))

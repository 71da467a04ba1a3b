# SPDX-License-Identifier: Apache-2.0
"""Turns a profile into what can be concluded of the machine, as numbers: ``findings`` of flextrace.profile/1.

File-cache sizes by direction, the write policy, and by region what larger requests, sequential access, more processes,
and reads instead of writes bring; and how repeatable it was. `selfscale.reporting.findings` makes sentences of them.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from selfscale.profile import Curve, Profile
from selfscale.profiles.direction_caches import READS, WRITES, DirectionCache, differ, direction_cache, file_cache_size
from selfscale.profiles.repeatability import Repeatability, repeatability
from selfscale.profiles.write_policy import WritePolicy, write_policy

NOTHING = 1.15
"""A ratio of throughputs below this is called no difference."""
MOST = 0.9
"""Share of the best throughput that is called most of the benefit."""
UNKNOWN_ERROR = 1.0
"""A throughput without an interval is taken to be right within a factor of e, or within what repeated ones differed."""
GAIN, LOSS, NONE, UNCLEAR = "gain", "loss", "none", "unclear"


@dataclass(frozen=True)
class Benefit:
    """What a parameter brings in a region, by its curve.

    Attributes
    ----------
    verdict : str
        `GAIN`, `LOSS`, `NONE`, or `UNCLEAR` where the difference is not larger than its uncertainty.
    factor, low, high : float
        Throughput at `to` over that at `start`, and its 95 % interval.
    start, to : float
        Values of the parameter: the smallest, and the best (sizeMean, processNum) or the largest (seqFrac, readFrac).
    start_bytes_per_s, to_bytes_per_s : float
    most_at : float
        Smallest value with `MOST` of the best throughput.
    rising : bool
        Whether that is the largest value that was measured, so that a larger one may bring more.
    values, unsteady : int
        Values that were measured; of them those that never became steady.
    """

    verdict: str
    factor: float
    low: float
    high: float
    start: float
    to: float
    start_bytes_per_s: float
    to_bytes_per_s: float
    most_at: float
    rising: bool
    values: int
    unsteady: int


@dataclass(frozen=True)
class Conclusions:
    """Everything; by region where there are several of a kind.

    Attributes
    ----------
    cached : bool
        Whether the page cache took part: without it there is no size and no policy to be told.
    """

    cached: bool
    read_cache: DirectionCache | None
    write_cache: DirectionCache | None
    caches_differ: bool
    write_policy: WritePolicy
    benefits: dict[str, list[Benefit | None]]
    repeatability: Repeatability

    def as_document(self) -> dict[str, Any]:
        """``findings`` of the profile; what is unknown is null."""
        return {
            "cache_bytes": {
                name: _cache_document(cache) for name, cache in (("read", self.read_cache), ("write", self.write_cache))
            },
            "caches_differ": self.caches_differ,
            "write_policy": asdict(self.write_policy),
            "benefits": {
                parameter: [asdict(benefit) if benefit else None for benefit in benefits]
                for parameter, benefits in self.benefits.items()
            },
            "repeatability": asdict(self.repeatability),
        }


def conclude(profile: Profile) -> Conclusions:
    """Everything that the points of a profile say; also of profiles that were written before there were findings."""
    read, write = (direction_cache(profile.measured, profile.regions, frac) for frac in (READS, WRITES))
    access = profile.access
    return Conclusions(
        access.cached,
        read,
        write,
        differ(read, write),
        write_policy(profile.measured, profile.regions, synced=access.stable),
        {
            parameter: [benefit(profile, profile.curve(parameter, index)) for index in range(len(profile.regions))]
            for parameter in ("sizeMean", "seqFrac", "processNum", "readFrac")
        },
        repeatability(profile.measured, profile.regions),
    )


def file_cache_bytes(profile: Profile) -> float | None:
    """Effective size of the file cache (`direction_caches.file_cache_size`); None: no border was found."""
    return file_cache_size(profile.measured, profile.regions, profile.boundaries_bytes)


def record_findings(profile: Profile) -> None:
    """Put the conclusions into the profile's document."""
    profile.findings = conclude(profile).as_document()


def benefit(profile: Profile, curve: Curve) -> Benefit | None:
    """What a curve's parameter brings; None with fewer than two values, or without both ends of a share's curve."""
    count = len(curve.x)
    shares = curve.parameter in {"seqFrac", "readFrac"}
    if count < 2 or (shares and (curve.x[0], curve.x[-1]) != (0, 1)):
        return None
    best = int(curve.throughput.argmax())
    to = count - 1 if shares else best
    factor = float(curve.throughput[to] / curve.throughput[0])
    # Relative errors of a quotient add up in squares.
    error = math.hypot(*(_error(profile, curve, at) for at in {0, to})) if to else 0.0
    low, high = factor * math.exp(-error), factor * math.exp(error)
    most = int(np.argmax(curve.throughput >= MOST * curve.throughput[best]))
    return Benefit(
        _verdict(factor, low, high),
        factor,
        low,
        high,
        float(curve.x[0]),
        float(curve.x[to]),
        float(curve.throughput[0]),
        float(curve.throughput[to]),
        float(curve.x[most]),
        most == count - 1,
        count,
        sum(not any(profile.measured[index].steady for index in indices) for indices in curve.indices),
    )


def _error(profile: Profile, curve: Curve, at: int) -> float:
    """Relative half-width of a value of a curve."""
    error = float(curve.half_width_95[at] / curve.throughput[at])
    if math.isfinite(error):
        return error
    return max(UNKNOWN_ERROR, repeatability(profile.measured, profile.regions).largest or 0.0)


def _verdict(factor: float, low: float, high: float) -> str:
    if 1 / NOTHING < factor < NOTHING:
        # Nothing is what is known to be nearly nothing.
        return NONE if low > 1 / NOTHING**2 and high < NOTHING**2 else UNCLEAR
    if low <= 1 <= high:
        return UNCLEAR
    return GAIN if factor > 1 else LOSS


def _cache_document(cache: DirectionCache | None) -> dict[str, Any] | None:
    if cache is None:
        return None
    document = asdict(cache)
    return {"effective": document.pop("size_bytes"), **document}

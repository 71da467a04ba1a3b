# SPDX-License-Identifier: Apache-2.0
"""Turns several profiles into the comparisons of Chen & Patterson 1994: cache sizes, throughput of cache and disk.

Profiles choose their own sizes of requests, so that machines cannot be compared at their focal points alone. As the
paper does (its section 5), throughput is taken to a common size by the product of single parameter functions: at the
focal vector, with reads only, times what the curve of sizeMean says of the common size over the profile's own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from characterize.workload import FIELD_OF, PARAMETERS
from selfscale.models.measured import LOGARITHMIC
from selfscale.profile import Curve, Profile
from selfscale.profiles.conclusions import file_cache_bytes

COMMON_SIZE_BYTES = 32 * 1024
"""The size of the paper's figures 2, 3 and 5."""


def names_of(profiles: Sequence[Profile]) -> list[str]:
    """A name for each profile, of its file, all different."""
    stems = [profile.path.stem if profile.path else "machine" for profile in profiles]
    return [
        stem if stems.count(stem) == 1 else f"{stem} ({stems[: index + 1].count(stem)})"
        for index, stem in enumerate(stems)
    ]


def level_of(profile: Profile, region: int) -> str:
    """What a region's requests are mostly served by: the paper has a file cache and a disk."""
    count = len(profile.regions)
    if count == 1:
        return "only region"
    if not profile.access.cached:
        return f"device, region {region + 1}"
    return {0: "file cache", count - 1: "disk"}.get(region, f"region {region + 1}")


def value_at(curve: Curve, value: float) -> float:
    """Throughput of a curve at a value, interpolated on the parameter's axis; NaN beyond what was measured."""
    x, at = (np.log(curve.x), math.log(value)) if curve.parameter in LOGARITHMIC else (curve.x, value)
    if not len(x) or not x[0] - 1e-9 <= at <= x[-1] + 1e-9:
        return math.nan
    return float(np.interp(at, x, curve.throughput))


def cache_sizes(profiles: Sequence[Profile]) -> pd.DataFrame:
    """Figure 4 of the paper.

    Returns
    -------
    DataFrame
        ``machine, cache_bytes`` (NaN where none was found, or the file cache takes no part), ``memory_bytes`` (of the
        memory group if there was one), ``share``.
    """
    rows = []
    for name, profile in zip(names_of(profiles), profiles, strict=True):
        cache = (file_cache_bytes(profile) if profile.access.cached else None) or math.nan
        memory = profile.environment.get("memory_limit_bytes") or profile.environment.get("memory_bytes") or math.nan
        rows.append({"machine": name, "cache_bytes": cache, "memory_bytes": memory, "share": cache / memory})
    return pd.DataFrame(rows)


def at_focal_points(profiles: Sequence[Profile]) -> pd.DataFrame:
    """Tables 2 and 3 of the paper: what each profile chose for its regions, and the throughput there.

    Returns
    -------
    DataFrame
        A row per machine and region: ``machine, region`` (from 1), ``level``, the five parameters of the focal vector,
        ``bytes_per_s``, ``half_width_95_bytes_per_s`` (NaN where it was not measured).
    """
    rows = []
    for name, profile in zip(names_of(profiles), profiles, strict=True):
        for index, region in enumerate(profile.regions):
            curve = profile.curve("sizeMean", index)
            at = np.flatnonzero(np.isclose(curve.x, region.focal.size_mean, rtol=1e-6))
            rows.append(
                {
                    "machine": name,
                    "region": index + 1,
                    "level": level_of(profile, index),
                    **{parameter: getattr(region.focal, FIELD_OF[parameter]) for parameter in PARAMETERS},
                    "bytes_per_s": curve.throughput[at[0]] if len(at) else math.nan,
                    "half_width_95_bytes_per_s": curve.half_width_95[at[0]] if len(at) else math.nan,
                }
            )
    return pd.DataFrame(rows)


def size_multiplier(profile: Profile, region: int) -> float:
    """Table 3's multiplier: throughput at `COMMON_SIZE_BYTES` over that at the focal size; NaN beyond the curve."""
    curve = profile.curve("sizeMean", region)
    return value_at(curve, COMMON_SIZE_BYTES) / value_at(curve, profile.regions[region].focal.size_mean)


def reads_of_common_size(profiles: Sequence[Profile]) -> pd.DataFrame:
    """Figures 2 and 3 of the paper: reads of `COMMON_SIZE_BYTES`.

    Returns
    -------
    DataFrame
        A row per machine and region: ``machine, region, level, reads_bytes_per_s`` (readFrac 1, the other parameters at
        the focal vector), ``size_multiplier``, ``common_size_bytes_per_s``; NaN where a curve does not go as far.
    """
    rows = []
    for name, profile in zip(names_of(profiles), profiles, strict=True):
        for index in range(len(profile.regions)):
            reads, multiplier = value_at(profile.curve("readFrac", index), 1.0), size_multiplier(profile, index)
            rows.append(
                {
                    "machine": name,
                    "region": index + 1,
                    "level": level_of(profile, index),
                    "reads_bytes_per_s": reads,
                    "size_multiplier": multiplier,
                    "common_size_bytes_per_s": reads * multiplier,
                }
            )
    return pd.DataFrame(rows)


def by_read_share(profiles: Sequence[Profile]) -> pd.DataFrame:
    """Figure 5 of the paper: file cache throughput against the share of reads, at `COMMON_SIZE_BYTES`.

    Returns
    -------
    DataFrame
        ``machine, readFrac, bytes_per_s``; a row per value that was measured, of the first region.
    """
    frames = []
    for name, profile in zip(names_of(profiles), profiles, strict=True):
        if profile.regions and profile.access.cached:
            curve = profile.curve("readFrac", 0)
            throughput = curve.throughput * size_multiplier(profile, 0)
            frames.append(pd.DataFrame({"machine": name, "readFrac": curve.x, "bytes_per_s": throughput}))
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def by_unique_bytes(profiles: Sequence[Profile]) -> pd.DataFrame:
    """Figures 7 and 8 of the paper: throughput against uniqueBytes, at each profile's own sizes.

    Returns
    -------
    DataFrame
        ``machine, uniqueBytes, bytes_per_s``; a row per value that was measured.
    """
    frames = []
    for name, profile in zip(names_of(profiles), profiles, strict=True):
        curve = profile.curve("uniqueBytes", None)
        frames.append(pd.DataFrame({"machine": name, "uniqueBytes": curve.x, "bytes_per_s": curve.throughput}))
    return pd.concat(frames, ignore_index=True)

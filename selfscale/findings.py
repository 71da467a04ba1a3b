# SPDX-License-Identifier: Apache-2.0
"""Turns a profile into sentences: cache size, and what each parameter brings in each region (as thesis 4.5.1 does)."""

from __future__ import annotations

from characterize.units import format_bytes
from selfscale.access import Access
from selfscale.cross_validation import Score, best_of
from selfscale.predict import errors_on_random
from selfscale.profile import Curve, Profile

NOTHING = 1.15
"""A ratio of throughputs below this is called no difference."""


def findings(profile: Profile) -> list[str]:
    """What the profile says in lines of text, for people who know storage but not the thesis."""
    sentences = [_cache(profile)]
    for index, region in enumerate(profile.regions):
        name = _region_name(index, len(profile.regions))
        sentences.append(
            f"{name}, uniqueBytes {format_bytes(region.low_bytes)} to {format_bytes(region.high_bytes)}; measured at "
            f"{format_bytes(region.focal.unique_bytes)}, sizeMean {format_bytes(region.focal.size_mean)}, "
            f"processNum {region.focal.process_num:g}:"
        )
        parts = [
            _size(profile.curve("sizeMean", index)),
            _from_to(profile.curve("seqFrac", index), "sequential access"),
            _concurrency(profile.curve("processNum", index)),
            _reads(profile.curve("readFrac", index)),
        ]
        sentences += [f"  - {part}" for part in parts if part] or ["  - its curves were not measured"]
    sentences += _quality(profile)
    return sentences


def _region_name(index: int, count: int) -> str:
    if count == 1:
        return "Only region"
    return {0: "Cached region", count - 1: "Disk region"}.get(index, f"Region {index + 1}")


def _cache(profile: Profile) -> str:
    limit = profile.environment.get("memory_limit_bytes")
    inside = f" (memory limit {format_bytes(limit)})" if limit else ""
    if not Access.of(profile.settings).cached:
        sizes = ", ".join(format_bytes(size) for size in profile.boundaries_bytes)
        falls = f"falls at uniqueBytes of {sizes}" if sizes else "does not fall with uniqueBytes"
        return f"The page cache took no part; throughput {falls}."
    if not profile.boundaries_bytes:
        return (
            f"Throughput does not fall with uniqueBytes{inside}: either nothing is cached, or the device is as fast as "
            "the cache, or uniqueBytes did not reach the size of the cache."
        )
    first, *others = profile.boundaries_bytes
    text = f"The effective size of the page cache is {format_bytes(first)}{inside}."
    if others:
        sizes = ", ".join(format_bytes(size) for size in others)
        text += f" Throughput falls again at {sizes}: reads and writes may be cached apart."
    return text


def _rate(bytes_per_s: float) -> str:
    return f"{bytes_per_s / 1e6:.4g} MB/s"


def _ends(curve: Curve) -> tuple[float, float] | None:
    return (float(curve.throughput[0]), float(curve.throughput[-1])) if len(curve.x) > 1 else None


def _size(curve: Curve) -> str:
    ends = _ends(curve)
    if not ends:
        return ""
    best = int(curve.throughput.argmax())
    sizes = f"requests of {format_bytes(curve.x[best])} instead of {format_bytes(curve.x[0])}"
    gain = curve.throughput[best] / ends[0]
    if gain < NOTHING:
        return "larger requests bring nothing"
    return f"{sizes} bring {gain:.3g} times the throughput ({_rate(ends[0])} to {_rate(curve.throughput[best])})"


def _from_to(curve: Curve, what: str) -> str:
    ends = _ends(curve)
    if not ends:
        return ""
    ratio = ends[1] / ends[0]
    if 1 / NOTHING < ratio < NOTHING:
        return f"{what} brings nothing"
    rates = f"({_rate(ends[0])} to {_rate(ends[1])})"
    if ratio < 1:
        return f"{what} lowers the throughput by {1 - ratio:.0%} {rates}"
    return f"{what} brings {ratio:.3g} times the throughput {rates}"


def _concurrency(curve: Curve) -> str:
    ends = _ends(curve)
    if not ends:
        return ""
    best = int(curve.throughput.argmax())
    gain = curve.throughput[best] / ends[0]
    if gain < NOTHING:
        return f"more than {curve.x[0]:g} process brings nothing"
    return f"{curve.x[best]:g} processes bring {gain:.3g} times the throughput of {curve.x[0]:g}"


def _reads(curve: Curve) -> str:
    ends = _ends(curve)
    if not ends:
        return ""
    writes, reads = ends
    if 1 / NOTHING < reads / writes < NOTHING:
        return f"reads and writes are equally fast ({_rate(reads)})"
    faster, slower = ("reads", "writes") if reads > writes else ("writes", "reads")
    ratio = max(ends) / min(ends)
    return f"{faster} are {ratio:.3g} times as fast as {slower} ({_rate(max(ends))} against {_rate(min(ends))})"


def _quality(profile: Profile) -> list[str]:
    sentences = []
    unsteady = sum(not point.steady for point in profile.measured)
    if unsteady:
        sentences.append(
            f"{unsteady} of {len(profile.measured)} points were not steady within the time they had: "
            "a larger --budget makes them better."
        )
    for entry in profile.drift.get("reference_points", []):
        if entry["spread"] > 0.15:
            sentences.append(
                f"The reference point of region {entry['region'] + 1} was measured "
                f"{len(entry['throughput_bytes_per_s'])} times and differed by {entry['spread']:.0%}: "
                "the machine was not quiet, or its device changes with use."
            )
    sentences += _models(profile)
    if profile.complete and (errors := errors_on_random(profile)):
        sentences.append(
            f"On {errors.count} random workloads the {errors.model} model's error was "
            f"{errors.prediction_median:.0%} (median), "
            f"{errors.prediction_mean:.0%} (mean), {errors.prediction_p90:.0%} (90th percentile), "
            f"{errors.prediction_max:.0%} (largest); measuring them twice differed by "
            f"{errors.repeatability_median:.0%} (median)."
        )
    return sentences


def _models(profile: Profile) -> list[str]:
    """The cross-validated errors that the profile carries."""
    scores = [Score(**score) for score in profile.models.get("scores", [])]
    usable = [score for score in scores if score.usable]
    if not usable:
        return []
    errors = ", ".join(f"{score.model} {score.errors['median']:.0%}" for score in usable)
    return [
        f"Predictions use the {best_of(scores).model} model; median errors on {usable[0].count} workloads that were "
        f"left out of the fit: {errors}."
    ]

# SPDX-License-Identifier: Apache-2.0
"""Turns conclusions into sentences: "What this machine is good at", in the manner of the lists of thesis 4.5.1."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from characterize.units import format_bytes, format_megabytes
from selfscale.profiles.conclusions import GAIN, LOSS, NONE, UNCLEAR, Benefit, Conclusions
from selfscale.profiles.direction_caches import DirectionCache
from selfscale.profiles.repeatability import Repeatability
from selfscale.profiles.write_policy import CANCELLING, SYNCED, THROUGH, UNCACHED, WritePolicy

VALUES_MIN = 3
"""A curve with fewer values says what its ends are and not more."""


def region_name(index: int, count: int, *, cached: bool) -> str:
    """What a region is called in text; without the page cache it is not known what is between them."""
    if count == 1:
        return "only region"
    known = {0: "cached region", count - 1: "disk region"} if cached else {}
    return known.get(index, f"region {index + 1}")


def strengths(conclusions: Conclusions) -> list[str]:
    """The list with its title, one sentence an item."""
    benefits, cached = conclusions.benefits, conclusions.cached
    items = [
        *([_caches(conclusions), _policy(conclusions.write_policy)] if cached else []),
        _by_region("Larger requests", benefits["sizeMean"], lambda one: _most(one, _requests), cached=cached),
        _by_region("Sequential access", benefits["seqFrac"], _sequential, cached=cached),
        _by_region("Concurrency", benefits["processNum"], lambda one: _most(one, _processes), cached=cached),
        _by_region("Reads and writes", benefits["readFrac"], _reads, cached=cached),
        _repeatable(conclusions.repeatability),
    ]
    return ["What this machine is good at:", *(f"  - {item}" for item in items if item)]


def rate(bytes_per_s: float) -> str:
    """A throughput for people."""
    return f"{format_megabytes(bytes_per_s)} MB/s"


def _caches(conclusions: Conclusions) -> str:
    read, write = conclusions.read_cache, conclusions.write_cache
    if read and write and not conclusions.caches_differ:
        return (
            f"File cache: no certain difference between reads and writes. Reads keep their speed {_cache(read)}; "
            f"writes {_cache(write)}."
        )
    if read and write:
        larger, smaller = ("reads", "writes") if read.size_bytes > write.size_bytes else ("writes", "reads")
        return (
            f"File cache: larger for {larger} than for {smaller}. Reads keep their speed {_cache(read)}; "
            f"writes {_cache(write)}."
        )
    known, name, other = (read, "reads", "writes") if read else (write, "writes", "reads")
    if known:
        flat = "they are as fast beyond it, or were not measured"
        if not write and conclusions.write_policy.kind in {SYNCED, THROUGH}:
            flat = "they go to storage anyway"
        return f"File cache: {name} keep their speed {_cache(known)}; no such fall was found for {other} ({flat})."
    return "File cache: none was found for reads or writes alone (no fall, or the budget did not pay for the points)."


def _cache(cache: DirectionCache) -> str:
    unsure = "" if cache.steady else ", by points that were not steady"
    return (
        f"up to {format_bytes(cache.size_bytes)} (ends between {format_bytes(cache.low_bytes)} and "
        f"{format_bytes(cache.high_bytes)}{unsure}; {rate(cache.inside_bytes_per_s)} inside, "
        f"{rate(cache.beyond_bytes_per_s)} far beyond)"
    )


def _policy(policy: WritePolicy) -> str:
    if policy.unique_bytes is None or policy.write_bytes_per_s is None or policy.read_bytes_per_s is None:
        return "Write policy: not known, reads alone and writes alone were not measured in the cache."
    place = f"at uniqueBytes {format_bytes(policy.unique_bytes)}"
    unsure = "" if policy.steady else ", by points that were not steady"
    rates = f"writes {rate(policy.write_bytes_per_s)}, reads {rate(policy.read_bytes_per_s)}{unsure}"
    if policy.kind == UNCACHED:
        return f"Write policy: nothing to tell, {place} reads come from storage, too ({rates})."
    if policy.kind == SYNCED:
        return f"Write policy: not told, the workloads have what they write made stable themselves: {place} {rates}."
    if policy.written_frac is not None:
        share = f"at most {_percent(policy.written_frac)} of the bytes written went to storage"
        known = {
            THROUGH: f"write-through: {place} everything that is written goes to storage, however often it is written",
            CANCELLING: f"write-cancelling (write-back): {place} {share}, the rest was written again before",
        }.get(policy.kind, f"neither clearly write-through nor write-cancelling: {place} {share}")
        return f"Write policy: {known} ({rates})."
    known = {
        THROUGH: "probably write-through, since in the cache reads are fast and writes as slow as beyond it",
        CANCELLING: "probably write-cancelling (write-back), since writes in the cache are much faster than beyond it",
    }.get(policy.kind, "not told by the throughput")
    return f"Write policy: {known}: {place} {rates} (what goes to storage is not counted here)."


def _percent(share: float) -> str:
    """With two digits or all that are before the point, and never with an exponent."""
    percent = 100 * share
    return f"{percent:.2g} %" if 1e-3 <= percent < 10 else f"{percent:.0f} %"


def _by_region(title: str, benefits: Sequence[Benefit | None], say: Callable[[Benefit], str], *, cached: bool) -> str:
    parts = [
        f"{region_name(index, len(benefits), cached=cached)}, {say(benefit)}{_doubts(benefit)}"
        for index, benefit in enumerate(benefits)
        if benefit
    ]
    return f"{title}: {'; '.join(parts)}." if parts else f"{title}: not measured."


def _requests(size_bytes: float) -> str:
    return f"requests of {format_bytes(size_bytes)}"


def _processes(count: float) -> str:
    return "1 process" if count == 1 else f"{count:g} processes"


def _most(benefit: Benefit, show: Callable[[float], str]) -> str:
    start = show(benefit.start)
    if benefit.verdict in {NONE, UNCLEAR}:
        return f"{'nothing' if benefit.verdict == NONE else 'nothing certain'} beyond {start}"
    best = f"{benefit.factor:.4g} times the {rate(benefit.start_bytes_per_s)} with {start}"
    if benefit.rising:
        return f"still more with {show(benefit.to)}, the most that was tried ({best})"
    return f"{show(benefit.most_at)} reach 90 % of the best ({rate(benefit.to_bytes_per_s)}, {best})"


def _sequential(benefit: Benefit) -> str:
    rates = f"({rate(benefit.to_bytes_per_s)} against {rate(benefit.start_bytes_per_s)})"
    return {
        GAIN: f"{benefit.factor:.4g} times as fast as random access {rates}",
        LOSS: f"{1 / benefit.factor:.4g} times as slow as random access {rates}",
        NONE: f"no faster than random access {rates}",
        UNCLEAR: f"no certain difference to random access {rates}",
    }[benefit.verdict]


def _reads(benefit: Benefit) -> str:
    rates = f"(reads {rate(benefit.to_bytes_per_s)}, writes {rate(benefit.start_bytes_per_s)})"
    return {
        GAIN: f"reads are {benefit.factor:.4g} times as fast as writes {rates}",
        LOSS: f"writes are {1 / benefit.factor:.4g} times as fast as reads {rates}",
        NONE: f"equally fast {rates}",
        UNCLEAR: f"no certain difference {rates}",
    }[benefit.verdict]


def _doubts(benefit: Benefit) -> str:
    doubts = []
    if benefit.values < VALUES_MIN:
        doubts.append(f"only {benefit.values} values measured")
    if benefit.unsteady:
        doubts.append(f"{benefit.unsteady} of {benefit.values} values not steady")
    return f" [{', '.join(doubts)}]" if doubts else ""


def _repeatable(repeated: Repeatability) -> str:
    unsteady = f"{repeated.unsteady} of {repeated.points} points were not steady"
    if repeated.median is None or repeated.largest is None:
        return f"Repeatability: not known, nothing was measured twice; {unsteady}."
    workloads = f"{repeated.repeated} workload" + "s" * (repeated.repeated != 1)
    return (
        f"Repeatability: what was measured again (of {workloads}) differed by "
        f"{repeated.median:.1%} in the median, {repeated.largest:.1%} at most; {unsteady}."
    )

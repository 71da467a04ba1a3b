# SPDX-License-Identifier: Apache-2.0
"""Turns an application's trace into the measured rows of a comparison: its replay, and Willy with its parameters.

Both run in a memory group of the same size as the application; each states how its page cache was at the start.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import characterize
from characterize.errors import FlextraceError
from characterize.expansion import expanded
from characterize.extended import cold_frac as cold_frac_of
from characterize.layout import RecordKind
from characterize.requests import requests_of
from characterize.trace import Trace
from characterize.units import format_bytes
from characterize.workload import Workload
from replayer.confine import MemoryGroup
from replayer.run import replay
from replayer.willy import check_workload, make_trace
from selfscale.ageing import AGEING_S, BEYOND, age
from selfscale.comparison import COLD_TOLERANCE, Row, Sample, sample_of
from selfscale.measure import Point, measure
from selfscale.plan import Settings
from selfscale.point_trace import trace_directory
from selfscale.profile import Profile

WILLY_REQUESTS_MAX = 200_000
"""The extended Willy repeats the application's number of requests up to here: memory and time of one run."""

APPEND_NOTED = 0.05
"""From this share of appended bytes on it is said that Willy overwrites."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Setting:
    """What all rows share.

    Attributes
    ----------
    trace : Trace
    layer : dict
        ``layers.vfs`` of the trace's characterization.
    workload : Workload
        Its five parameters, uniqueBytes as footprint.
    profile : Profile
    directory : Path
    memory_bytes : int or None
        Limit in which replay and Willy run.
    repeat, seed : int
    timing : str
        Of the replay.
    max_seconds : float
        Longest run of Willy.
    """

    trace: Trace
    layer: dict[str, Any]
    workload: Workload
    profile: Profile
    directory: Path
    memory_bytes: int | None
    repeat: int
    seed: int
    timing: str
    max_seconds: float

    @property
    def cold_frac(self) -> float | None:
        """Share of the application's read bytes that were cold; None = not measured."""
        return (self.layer.get("extended") or {}).get("coldFrac")

    @property
    def sync_frac(self) -> float | None:
        """Syncs per write of the application; None without writes."""
        return (self.layer.get("extended") or {}).get("syncFrac")


def application_row(setting: Setting) -> Row:
    """The recording itself: what every other row is held against."""
    limit = setting.trace.header.metadata.get("memory_limit_bytes")
    row = Row(
        name="application",
        label="application",
        made_by="the recording",
        workload=setting.workload,
        samples=[sample_of(setting.layer)],
        memory_limit_bytes=limit,
        cold_frac=setting.cold_frac,
        page_cache="as recorded",
        notes=["its times hold the recorder's own cost per operation; the other rows ran unrecorded"],
    )
    if refused := _willy_refuses(setting):
        row.notes.append(f"there is no row of Willy, which has a file for each process: {refused}")
    if not setting.trace.header.complete:
        row.reasons.append("records were lost while recording")
    return row


def _memory_group(setting: Setting) -> AbstractContextManager[MemoryGroup | None]:
    return nullcontext() if setting.memory_bytes is None else MemoryGroup(setting.memory_bytes)


@contextmanager
def _own_directory(setting: Setting) -> Iterator[Path]:
    """A directory for one row's image, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="flextrace-compare-", dir=setting.directory) as path:
        yield Path(path)


def _run_trace(setting: Setting, path: Path, what: str, timing: str, say: Say) -> list[dict[str, Any]]:
    """Replay one trace file `repeat` times, each time from the page cache that it records.

    The image is laid out, evicted and kept outside the memory group, and every run has a group of its own: pages stay
    charged to the group that read them first, so a run would otherwise use its predecessor's.
    """
    results = []
    with _own_directory(setting) as directory:
        for number in range(1, setting.repeat + 1):
            say(f"{what}: laying out its files" if number == 1 else f"{what}: restoring its files")
            replay(path, directory, timing=timing, phase="prepare", keep_image=True)
            say(f"{what}: run {number} of {setting.repeat}")
            with _memory_group(setting) as group:
                results.append(
                    replay(
                        path,
                        directory,
                        timing=timing,
                        cache="recorded",
                        phase="run",
                        keep_image=True,
                        memory_group=group,
                    )
                )
    return results


def _reasons(results: list[dict[str, Any]]) -> list[str]:
    """What the replays say against themselves, every reason once."""
    found = [
        reason for result in results if not result.get("trustworthy", True) for reason in result.get("reasons", [])
    ]
    return list(dict.fromkeys(found))


def replay_row(setting: Setting, say: Say) -> Row:
    """The recording replayed, from the page cache that it records."""
    assert setting.trace.path is not None  # compare() has refused otherwise
    with expanded(setting.trace.path) as path:
        results = _run_trace(setting, path, "replay", setting.timing, say)
    samples = [sample_of(result) for result in results]
    return Row(
        name="replay",
        label="replay",
        made_by=f"the recording replayed, timing {setting.timing}, from the recorded page cache",
        workload=setting.workload,
        samples=samples if setting.timing == "think" else [_without_elapsed(sample) for sample in samples],
        memory_limit_bytes=setting.memory_bytes,
        cold_frac=setting.cold_frac,
        page_cache="as recorded, file by file",
        reasons=_reasons(results),
        details={"operations": results[0].get("operations"), "mismatches": results[0].get("mismatches")},
    )


def _overwrites(setting: Setting) -> list[str]:
    """What Willy does differently by definition (3.4.2), where it matters for this application."""
    append_frac = (setting.layer.get("extended") or {}).get("appendFrac") or 0.0
    if append_frac < APPEND_NOTED:
        return []
    return [f"overwrites only; {append_frac:.0%} of the bytes that the application writes extend a file"]


def _age(setting: Setting, directory: Path, group: MemoryGroup | None, say: Say) -> str | None:
    """Age a new page cache as before the points of a profile (`selfscale.ageing`); why not, where that is not done."""
    if group is None:
        return "no memory group bounds the page cache"
    needed_bytes = BEYOND * group.limit_bytes
    if needed_bytes > shutil.disk_usage(directory).free:
        return f"there is no room for files of {format_bytes(needed_bytes)}"
    settings = Settings(group.limit_bytes, budget_s=0.0, cpus=len(os.sched_getaffinity(0)))
    age(settings, directory, group, min(AGEING_S, setting.max_seconds), say)
    return None


def _willy_refuses(setting: Setting) -> str:
    """Why Willy cannot have the application's parameters; empty where it can."""
    try:
        check_workload(setting.workload)
    except FlextraceError as error:
        return str(error)
    return ""


def willy_rows(setting: Setting, say: Say) -> list[Row]:
    """Willy of the thesis, and extended; none where it cannot have the application's parameters."""
    return [] if _willy_refuses(setting) else [_willy_row(setting, say), _willy_extended_row(setting, say)]


def _willy_row(setting: Setting, say: Say) -> Row:
    """Willy of the thesis, measured as every point of the profile is."""
    points = []
    with _own_directory(setting) as directory, _memory_group(setting) as group:
        not_aged = _age(setting, directory, group, say)
        for number in range(1, setting.repeat + 1):
            say(f"Willy: run {number} of {setting.repeat}")
            points.append(_measured(setting, directory, group, number))
    samples = []
    for point in points:
        sample = sample_of(
            {
                "throughput_in_io_bytes_per_s": point.throughput_bytes_per_s,
                "response_time": point.response_time,
                "time_in_sync_s": 0.0,
            }
        )
        samples.append(sample)
    unsteady = sum(not point.steady for point in points)
    notes = (
        [f"{unsteady} of {len(points)} runs not steady: {points[-1].reason or 'see the samples'}"] if unsteady else []
    )
    notes += [f"page cache not aged: {not_aged}"] if not_aged else []
    return Row(
        name="willy",
        label="Willy",
        made_by="Willy with the five parameters, warm start, until steady (thesis 3.4)",
        workload=setting.workload,
        samples=samples,
        memory_limit_bytes=setting.memory_bytes,
        cold_frac=0.0,
        page_cache="warm start, not aged" if not_aged else "warm start, aged",
        notes=_overwrites(setting) + notes,
    )


def _without_elapsed(sample: Sample) -> Sample:
    """Elapsed time means nothing where the application's own computing is not repeated."""
    return {**sample, "throughput_bytes_per_s": None}


def _measured(setting: Setting, directory: Path, group: MemoryGroup | None, number: int) -> Point:
    return measure(
        setting.workload,
        directory,
        memory_group=group,
        seed=setting.seed + number,
        max_seconds=setting.max_seconds,
    )


def _willy_extended_row(setting: Setting, say: Say) -> Row:
    """Willy with the application's syncs, its number of requests, and its share of cold reads."""
    times = setting.layer["response_time"]
    wanted = int(times["read"]["count"]) + int(times["write"]["count"])
    requests = min(wanted, WILLY_REQUESTS_MAX)
    sync_frac = min(1.0, setting.sync_frac or 0.0)
    willy = make_trace(setting.workload, requests=requests, sync_frac=sync_frac, seed=setting.seed, allow_partial=True)
    cold_frac = chill(willy, setting.cold_frac or 0.0)
    with tempfile.TemporaryDirectory(prefix="flextrace-compare-", dir=trace_directory()) as scratch:
        path = characterize.write(willy, Path(scratch) / "willy.iotrace")
        results = _run_trace(setting, path, "Willy extended", "asap", say)
    row = Row(
        name="willy_extended",
        label="Willy extended",
        made_by=f"Willy with the five parameters, {requests} requests once, syncFrac {sync_frac:.3g}, "
        f"coldFrac {cold_frac:.3g}",
        workload=setting.workload,
        samples=[_without_elapsed(sample_of(result)) for result in results],
        memory_limit_bytes=setting.memory_bytes,
        cold_frac=None if setting.cold_frac is None else cold_frac,
        page_cache="a share of each file",
        reasons=_reasons(results),
        notes=_overwrites(setting) + willy.warnings,
        details={"requests": requests, "syncFrac": sync_frac},
    )
    if setting.cold_frac is not None and cold_frac < setting.cold_frac - COLD_TOLERANCE:
        row.notes.append("even from an empty cache its reads meet more blocks that its own requests touched before")
    if sync_frac < (setting.sync_frac or 0.0):
        row.notes.append(f"one sync per write, the application {setting.sync_frac:.3g}")
    if requests < wanted:
        row.notes.append(f"{requests} of the application's {wanted} requests")
    return row


def chill(trace: Trace, cold_frac: float) -> float:
    """Choose how much of every file is in the page cache at the start, so that the trace gets the wanted coldFrac.

    Parameters
    ----------
    trace : Trace
        Synthetic; its FILE records are changed in place.
    cold_frac : float
        Wanted share of read bytes that are not in the page cache when first touched.

    Returns
    -------
    float
        The share that was reached: a trace that reads little data for the first time cannot be colder than that.
    """
    files = trace.arrays[RecordKind.FILE]
    files["resident_bytes"] = 0
    requests = requests_of(trace)
    coldest, _ = cold_frac_of(trace, requests)
    if not coldest > 0:
        files["resident_bytes"] = files["size_bytes"]
        return 0.0
    resident_share = max(0.0, 1 - cold_frac / coldest)
    files["resident_bytes"] = np.round(resident_share * files["size_bytes"].astype(np.float64)).astype(np.uint64)
    return cold_frac_of(trace, requests)[0]

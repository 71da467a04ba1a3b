# SPDX-License-Identifier: Apache-2.0
"""Turns an application's trace into the measured rows of a comparison: its replay, and Willy with its parameters.

All run in a memory group of the same size as the application; each states how its page cache was at the start. They
take turns: on a machine whose speed changes within minutes, runs of one row back to back would look repeatable, and
rows would differ by when they ran.
"""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import characterize
from characterize.errors import FlextraceError
from characterize.extended import cold_frac as cold_frac_of
from characterize.layout import RecordKind
from characterize.requests import requests_of
from characterize.trace import Trace
from characterize.trace_files.expansion import expanded
from characterize.units import format_bytes
from characterize.workload import Workload
from replayer.run import replay
from replayer.running.confine import MemoryGroup
from replayer.willy import check_workload, make_trace
from selfscale.comparing.comparison import COLD_TOLERANCE, Row, Sample, sample_of
from selfscale.measure import Point, measure
from selfscale.measuring.ageing import AGEING_S, BEYOND, age
from selfscale.measuring.defragment import defragment
from selfscale.measuring.scratch import scratch_directory, willy_bytes
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


@dataclass(frozen=True)
class _Measuring:
    """A row whose files are there: run it any number of times, then ask for it."""

    run: Callable[[], None]
    row: Callable[[], Row]


def measured_rows(setting: Setting, say: Say) -> list[Row]:
    """The replay, Willy of the thesis and Willy extended; without the latter two where it cannot have the parameters.

    Each is measured once in every round, in the opposite order in every second one. The files of all of them are there
    until the last round.
    """
    rows = [_replayed] if _willy_refuses(setting) else [_replayed, _willy, _willy_extended]
    with ExitStack() as stack:
        measuring = [stack.enter_context(row(setting, say)) for row in rows]
        for number in range(setting.repeat):
            if setting.repeat > 1:
                say(f"round {number + 1} of {setting.repeat}")
            for each in reversed(measuring) if number % 2 else measuring:
                os.sync()  # what the row before left dirty is not to be written while this one runs
                each.run()
        return [each.row() for each in measuring]


class _Replays:
    """Runs of one trace file, each from the page cache that it records.

    The image is laid out, put in order, evicted and kept outside the memory group, and every run has a group of its
    own: pages stay charged to the group that read them first, so a run would otherwise use its predecessor's.
    """

    def __init__(self, setting: Setting, path: Path, directory: Path, timing: str, say: Say):
        self._setting, self._path, self._directory, self._timing, self._say = setting, path, directory, timing, say
        self.results: list[dict[str, Any]] = []

    def run(self) -> None:
        self._say("restoring its files" if self.results else "laying out its files")
        replay(self._path, self._directory, timing=self._timing, phase="prepare", keep_image=True)
        defragment(self._directory, math.inf)
        os.sync()  # nor is what this has left under way to be
        self._say("running")
        with _memory_group(self._setting) as group:
            result = replay(
                self._path,
                self._directory,
                timing=self._timing,
                cache="recorded",
                phase="run",
                keep_image=True,
                memory_group=group,
            )
        self.results.append(result)


def _reasons(results: list[dict[str, Any]]) -> list[str]:
    """What the replays say against themselves, every reason once."""
    found = [
        reason for result in results if not result.get("trustworthy", True) for reason in result.get("reasons", [])
    ]
    return list(dict.fromkeys(found))


@contextmanager
def _replayed(setting: Setting, say: Say) -> Iterator[_Measuring]:
    """The recording replayed, from the page cache that it records."""
    assert setting.trace.path is not None  # compare() has refused otherwise
    with expanded(setting.trace.path) as path, _own_directory(setting) as directory:
        runs = _Replays(setting, path, directory, setting.timing, lambda text: say(f"replay: {text}"))
        yield _Measuring(runs.run, lambda: _replay_row(setting, runs.results))


def _replay_row(setting: Setting, results: list[dict[str, Any]]) -> Row:
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
    """Age a new page cache as before the points of a profile (`ageing`); why not, where that is not done."""
    if group is None:
        return "no memory group bounds the page cache"
    needed_bytes = BEYOND * group.limit_bytes
    if needed_bytes > shutil.disk_usage(directory).free:
        return f"there is no room for files of {format_bytes(needed_bytes)}"
    seconds, cpus = min(AGEING_S, setting.max_seconds), len(os.sched_getaffinity(0))
    age(directory, group, seconds, say, cache_bytes=group.limit_bytes, cpus=cpus)
    return None


def _willy_refuses(setting: Setting) -> str:
    """Why Willy cannot have the application's parameters; empty where it can."""
    try:
        check_workload(setting.workload)
    except FlextraceError as error:
        return str(error)
    return ""


@contextmanager
def _willy(setting: Setting, say: Say) -> Iterator[_Measuring]:
    """Willy of the thesis, measured as every point of the profile is."""
    points: list[Point] = []
    with _own_directory(setting) as directory, _memory_group(setting) as group:
        not_aged = _age(setting, directory, group, say)

        def run() -> None:
            say("Willy: running")
            points.append(_measured(setting, directory, group, len(points) + 1))

        yield _Measuring(run, lambda: _willy_row(setting, points, not_aged))


def _willy_row(setting: Setting, points: list[Point], not_aged: str | None) -> Row:
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


@contextmanager
def _willy_extended(setting: Setting, say: Say) -> Iterator[_Measuring]:
    """Willy with the application's syncs, its number of requests, and its share of cold reads."""
    times = setting.layer["response_time"]
    wanted = int(times["read"]["count"]) + int(times["write"]["count"])
    requests = min(wanted, WILLY_REQUESTS_MAX)
    sync_frac = min(1.0, setting.sync_frac or 0.0)
    willy = make_trace(setting.workload, requests=requests, sync_frac=sync_frac, seed=setting.seed, allow_partial=True)
    cold_frac = chill(willy, setting.cold_frac or 0.0)
    notes = _overwrites(setting) + willy.warnings
    if setting.cold_frac is not None and cold_frac < setting.cold_frac - COLD_TOLERANCE:
        notes.append("even from an empty cache its reads meet more blocks that its own requests touched before")
    if sync_frac < (setting.sync_frac or 0.0):
        notes.append(f"one sync per write, the application {setting.sync_frac:.3g}")
    if requests < wanted:
        notes.append(f"{requests} of the application's {wanted} requests")

    def row() -> Row:
        return Row(
            name="willy_extended",
            label="Willy extended",
            made_by=f"Willy with the five parameters, {requests} requests once, syncFrac {sync_frac:.3g}, "
            f"coldFrac {cold_frac:.3g}",
            workload=setting.workload,
            samples=[_without_elapsed(sample_of(result)) for result in runs.results],
            memory_limit_bytes=setting.memory_bytes,
            cold_frac=None if setting.cold_frac is None else cold_frac,
            page_cache="a share of each file",
            reasons=_reasons(runs.results),
            notes=notes,
            details={"requests": requests, "syncFrac": sync_frac},
        )

    place = scratch_directory(willy_bytes(requests, sync_frac), "the trace of Willy")
    with (
        tempfile.TemporaryDirectory(prefix="flextrace-compare-", dir=place) as scratch,
        _own_directory(setting) as directory,
    ):
        path = characterize.write(willy, Path(scratch) / "willy.iotrace")
        runs = _Replays(setting, path, directory, "asap", lambda text: say(f"Willy extended: {text}"))
        yield _Measuring(runs.run, row)


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

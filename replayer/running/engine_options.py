# SPDX-License-Identifier: Apache-2.0
"""Turns what is wanted of a replay into arguments of the engine."""

from __future__ import annotations

import os
from typing import TypedDict


class EngineOptions(TypedDict, total=False):
    """How a trace is to be run; what is not given is as the engine has it by default.

    Attributes
    ----------
    timing : {"asap", "think", "recorded"}
        No waiting; recorded think times after each completion; every operation at its recorded time.
    order : {"resource", "recorded", "thread"}, optional
        Across threads, what had ended before and touches the same files or names or was waited for, all that had ended
        before, or nothing precedes an operation (docs/decisions/0002-order.md); default: as the trace needs.
    cache : {"recorded", "warm", "cold", "keep"}
        Page cache of the files at the start.
    data : str
        Of the files and of what is written: ``random``, ``compressible`` or ``compressible:PERCENT``, which compresses
        to about PERCENT of its size (50).
    layout : {"any", "recorded"}
        Blocks of the files: as the file system chooses, or in the order of their recorded places.
    phase : {"all", "prepare", "run"}
        ``prepare`` lays out the files and leaves them; ``run`` expects them.
    keep_image : bool
        Leave the files behind.
    loop : bool
        Begin again at the end, until stopped.
    max_seconds : float, optional
        Stop after this time, seconds.
    interval_ms : float, optional
        Length of the intervals that `on_interval` is told of, milliseconds.
    computing : {"recorded", "off"}
        With timing "think": threads have a processor in their think times for as long as when recorded, and compute, or
        they only sleep.
    think_burst_us : float
        Threads compute for about so long at a time, microseconds, and sleep in between; default: they sleep once.
    recording_us : float
        What recording, and entering and leaving the kernel, took of the time between two operations, microseconds: the
        replay leaves it out.
    others : float
        Processors that threads of the engine keep busy meanwhile, as programs did that were not recorded.
    others_burst_us : float
        For so long at a time, microseconds.
    speed : float
        Recorded times are divided by this.
    late : {"catch-up", "skip", "slip"}
        With timing "recorded": operations behind their times begin at once, or are left out, or move all later times.
    late_limit_ms : float, optional
        How far behind a request has to be for ``late="skip"``, milliseconds (default 10).
    engine : {"auto", "sync", "io_uring", "null"}
        What issues the requests (docs/decisions/0010-engines-and-lateness.md). ``null`` issues none.
    depth : int, optional
        Requests in flight per thread at most; default: as recorded, or 1 for synthetic traces.
    processors : int, optional
        That the threads of the engine have at most, by a control group: it then spins on fewer while it waits.
    lead : int, optional
        With timing "asap": operations that a thread may be ahead of the slowest (docs/decisions/0025); default: any.
    direct : {"recorded", "on", "off"}
        O_DIRECT.
    sync : {"recorded", "off", "dsync", "sync"}
        O_SYNC, O_DSYNC, and the fsync family; dsync, sync: every write by O_DSYNC or O_SYNC, the fsync family as
        recorded.
    force_space : bool
        Begin although the space seems too little.
    device : path-like, optional
        Block device that takes the place of the trace's one. Nobody else may use it. Only read, unless:
    confirm : str, optional
        Its serial number, or, where it has none, its size in bytes: the trace's writes are done as well.
    """

    timing: str
    order: str | None
    cache: str
    data: str
    layout: str
    phase: str
    keep_image: bool
    loop: bool
    max_seconds: float | None
    interval_ms: float | None
    computing: str
    think_burst_us: float
    recording_us: float
    others: float
    others_burst_us: float
    speed: float
    late: str
    late_limit_ms: float | None
    engine: str
    depth: int | None
    processors: int
    lead: int | None
    direct: str
    sync: str
    force_space: bool
    device: str | os.PathLike[str] | None
    confirm: str | None


def engine_arguments(directory: str | os.PathLike[str] | None, options: EngineOptions) -> list[str]:
    """The arguments of the engine beside the trace: ``--name=value``, or ``--name`` of what is only on or off."""
    given: dict[str, object] = {"directory": directory, **options}
    arguments = ["--write"] if given.get("confirm") is not None else []
    for name, value in given.items():
        option = f"--{name.replace('_', '-')}"
        if value is True:
            arguments.append(option)
        elif value is not None and value is not False:
            arguments.append(f"{option}={value}")
    return arguments

# SPDX-License-Identifier: Apache-2.0
"""Turns a load, an application that tells its own rate, and a tracer around it into one sample."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tests.bench.interleaved import Sample
from tests.bench.machine_cpu import busy_ns, with_busy_time


class UnavailableError(RuntimeError):
    """A load cannot run on this machine; the message says why."""


@dataclass(frozen=True)
class Result:
    """What a load says it did."""

    rate: float
    operations: float


@dataclass(frozen=True)
class Load:
    """An application with something to do for some seconds.

    ``prepare`` is called before every run: it brings what the command works on into the same state each time, for a
    load whose runs would otherwise change what the next one finds.
    """

    title: str
    operation: str  # what its rate counts, e.g. reads
    target_percent: float  # of its rate that recording may cost
    command: list[str]
    result: Callable[[str], Result] | None  # from what the command prints; None: it tells nothing
    calls: tuple[str, ...] = ()  # the system calls that do its I/O
    server: int | None = None  # process that does the I/O for the command; None: the command does it
    prepare: Callable[[], None] = lambda: None


class Tracer(Protocol):
    """A way of watching a load."""

    @property
    def name(self) -> str:
        """For tables."""

    @property
    def lost(self) -> int:
        """Events that it said it lost, in all runs."""

    def around(self, load: Load, directory: Path) -> AbstractContextManager[list[str]]:
        """Trace while inside; the words to put before the load's command. ``directory`` is for the tracer's output."""


def run_load(load: Load, tracer: Tracer, directory: Path) -> Sample:
    """Run the load, which tells its rate, once inside the tracer."""
    assert load.result
    report = directory / "busy"
    load.prepare()
    with tracer.around(load, directory) as prefix:
        # Not checked: a recorder that lost records ends with 3.
        done = subprocess.run(
            [*prefix, *with_busy_time(load.command, report)], capture_output=True, text=True, check=False
        )
        try:
            result = load.result(done.stdout)
        except (ValueError, LookupError, AttributeError) as error:
            raise RuntimeError(
                f"{load.title}, {tracer.name}: no result (exit {done.returncode}): {done.stderr}"
            ) from error
    return Sample(result.rate, busy_ns(report) / max(result.operations, 1))

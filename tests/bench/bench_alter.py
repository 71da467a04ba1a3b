# SPDX-License-Identifier: Apache-2.0
"""How well every parameter is changed and the others are held, on many traces: ``make bench-alter``.

The traces are made (like a sort, like a database, Willy's), recorded on the spot (debit-credit on SQLite, GNU sort, fio
with two threads), or foreign block traces given by ``--foreign``. There is nothing timed in it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import characterize
from characterize.errors import FlextraceError
from characterize.formats.foreign import read_foreign
from characterize.layout import RecordKind
from characterize.trace import Header, Trace
from replayer.alter import Relative, alter
from replayer.flexible.curve import CURVE_HELD
from replayer.flexible.manifest import SHARES, TIMES, Manifest
from replayer.running.binaries import find_binary
from tests.demo.sort_input import write_sort_input
from tests.traces.flexible_traces import database_like, sort_like, willy

FACTORS = (0.25, 0.5, 0.8, 1.25, 2.0, 4.0)
TARGETS = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
PARAMETERS = ("uniqueBytes", "seqFrac", "readFrac", "sizeMean", "processNum", *TIMES)
FOREIGN_REQUESTS = 20_000


@dataclass(frozen=True)
class Outcome:
    """One change of one parameter of one trace."""

    change: str
    manifest: Manifest | None
    refusal: str = ""

    def error(self, name: str) -> float:
        """Of the parameter that was changed."""
        assert self.manifest
        return abs(self.manifest.deviation[name])

    def held(self, name: str) -> tuple[float, str]:
        """The largest deviation of another parameter, and which."""
        assert self.manifest
        others = {other: abs(value) for other, value in self.manifest.deviation.items() if other != name}
        worst = max(others, key=others.__getitem__)
        return others[worst], worst

    @property
    def bent(self) -> float:
        """How much further the curve moved than it had to."""
        assert self.manifest
        return self.manifest.curve.beyond_least


def outcomes_of(trace: Trace, parameter: str, only: Sequence[str]) -> Iterator[Outcome]:
    """Every change of a parameter, or only some."""
    changes: list[float | Relative] = list(TARGETS) if parameter in SHARES else [Relative(factor) for factor in FACTORS]
    for change in changes:
        if only and str(change) not in only:
            continue
        try:
            yield Outcome(str(change), alter(trace, {parameter: change})[1])
        except FlextraceError as error:
            yield Outcome(str(change), None, str(error))


def made_traces() -> Iterator[tuple[str, Trace]]:
    """Traces that look like applications, and Willy's."""
    yield "sort-like", sort_like()
    yield "database-like", database_like()
    yield "Willy, binomial sizes", willy()
    yield "Willy, fixed sizes", willy(1, "fixed")
    yield "Willy, bernoulli sizes", willy(4, "bernoulli")


def recorded_traces(directory: Path) -> Iterator[tuple[str, Trace]]:
    """Recordings; those that are in the directory already are taken from it."""
    directory.mkdir(parents=True, exist_ok=True)
    bank, text = directory / "bank.db", directory / "text"
    load = directory / "load"
    program = [str(find_binary("tests/debit_credit")), str(bank), "--accounts", "20000"]
    fio = ["fio", "--name=load", f"--directory={load}", "--thread", "--numjobs=2", "--size=16m", "--rw=randrw"]
    fio += ["--percentage_random=60", "--bsrange=4k-64k", "--fsync=64", "--randseed=1", "--ioengine=psync"]
    commands = {
        "debit-credit": [*program, "--transactions", "2000"],
        "GNU sort": ["sort", "--parallel=2", "-S4M", f"-T{directory}", "-o", str(directory / "sorted"), str(text)],
        "fio, 2 threads": fio,
    }
    for name, command in commands.items():
        trace = directory / f"{name.split(',')[0].replace(' ', '-')}.iotrace"
        if not trace.exists():
            if name == "GNU sort":
                write_sort_input(text, 24 << 20)
            elif name == "debit-credit":
                subprocess.run([*program, "--transactions", "1"], check=True, capture_output=True)
            load.mkdir(exist_ok=True)
            recorder = [str(find_binary("flextrace-record")), f"-o{trace}", "--layer=vfs", f"--path={directory}"]
            subprocess.run([*recorder, "--", *command], check=True, capture_output=True)
        yield name, characterize.open(trace)


def foreign_trace(path: Path) -> Trace:
    """The first requests of a block trace."""
    trace = read_foreign(path)
    blocks = trace.arrays[RecordKind.BLOCK][:FOREIGN_REQUESTS]
    return Trace(Header(metadata=trace.header.metadata), {RecordKind.BLOCK: blocks})


def summary(name: str, parameter: str, outcomes: list[Outcome]) -> str:
    """One row: how many changes were made, and the worst of them."""
    done = [outcome for outcome in outcomes if outcome.manifest]
    refused = len(outcomes) - len(done)
    if not done:
        return f"| {name} | {parameter} | 0 | {refused} | | | | | | |"
    target = max(outcome.error(parameter) for outcome in done)
    held, which = max(outcome.held(parameter) for outcome in done)
    bent = [outcome.bent for outcome in done]
    curves = [outcome.manifest.curve for outcome in done if outcome.manifest]
    least = max(curve.least_error for curve in curves)
    scaled = [curve.scaled_error for curve in curves if curve.scaled_error is not None]
    return (
        f"| {name} | {parameter} | {len(done)} | {refused} | {target:.2%} | {held:.2%}{f' ({which})' if held else ''} "
        f"| {max(bent):.3f} | {sum(off <= CURVE_HELD for off in bent)} | {least:.3f} "
        f"| {f'{max(scaled):.3f}' if scaled else ''} |"
    )


def rows_of(trace: Trace, parameter: str, only: Sequence[str], *, every: bool) -> list[Outcome]:
    """All changes of a parameter, or only some; with `every`, each is printed."""
    outcomes = []
    for outcome in outcomes_of(trace, parameter, only):
        outcomes.append(outcome)
        if not every:
            continue
        if outcome.manifest:
            held, which = outcome.held(parameter)
            print(
                f"  {parameter:<12} {outcome.change:>6}  off {outcome.error(parameter):.2%}  held {held:.2%} {which}  "
                f"curve {outcome.manifest.curve.mean_error:.3f} (least {outcome.manifest.curve.least_error:.3f})"
            )
        else:
            print(f"  {parameter:<12} {outcome.change:>6}  {outcome.refusal}")
        sys.stdout.flush()
    return outcomes


def main() -> int:
    """Print the table; 1 where a change that was made is off."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recordings", type=Path, default=Path("build/bench-alter"), help="directory of recordings")
    parser.add_argument("--foreign", type=Path, nargs="*", default=[], help="block traces, as MQSim has them")
    parser.add_argument("--only", default="", help="only traces with this in their names")
    parser.add_argument("--parameter", choices=PARAMETERS, help="only this one")
    parser.add_argument("--changes", nargs="*", default=[], help="only these, such as 0.25x of a size, 1.0 of a share")
    parser.add_argument("--every", action="store_true", help="print every change as well")
    arguments = parser.parse_args()
    print("| trace | change of | made | refused | target off | held off | curve off | held | unavoidable | scaled |")
    print(f"|{'---|' * 10}", flush=True)
    off = False
    named = [*made_traces(), *recorded_traces(arguments.recordings)]
    named += [(path.stem, foreign_trace(path)) for path in arguments.foreign]
    for name, trace in named:
        if arguments.only not in name:
            continue
        for parameter in [arguments.parameter] if arguments.parameter else PARAMETERS:
            outcomes = rows_of(trace, parameter, arguments.changes, every=arguments.every)
            print(summary(name, parameter, outcomes), flush=True)
            off |= any(outcome.manifest is not None and outcome.manifest.off for outcome in outcomes)
    return int(off)


if __name__ == "__main__":
    sys.exit(main())

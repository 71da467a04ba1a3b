# SPDX-License-Identifier: Apache-2.0
"""``make demo``: turns two real applications and this machine into comparison tables and one HTML report.

The applications are GNU sort, which merges from temporary files, and debit-credit transactions (TPC-B) on SQLite. Every
step is a public command, printed before it runs. Recording, replays and the self-scaling run are confined to memory
groups of one size, and every run starts with its inputs out of the page cache, so that the table compares equal things.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from characterize.errors import FlextraceError
from replayer.running.binaries import find_binary
from tests.demo.sizes import QUICK, ROOT, Sizes, require
from tests.demo.sort_input import write_sort_input

PARAMETERS = ("uniqueBytes", "seqFrac", "readFrac", "sizeMean", "processNum")
ALTERATIONS = {"sizeMean": ("--size-mean", "4x"), "processNum": ("--process-num", "4x")}
NOT_TRUSTWORTHY = 3


@dataclass
class Application:
    """A program to record: its name, its command, the files that are read."""

    name: str
    command: list[str]
    inputs: list[Path]


@dataclass
class Demo:
    """The state of one run.

    Attributes
    ----------
    output : Path
        Traces, documents and the report stay here.
    work : Path
        Inputs and images; removed at the end, also after a failure.
    sizes : Sizes
    doubts : list of str
        Steps whose result is not trustworthy (exit 3).
    """

    output: Path
    work: Path
    sizes: Sizes
    doubts: list[str] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)

    def command(self, *words: object, quiet: bool = False) -> str:
        """Print a command as a user would type it, run it, and print what it took.

        Returns
        -------
        str
            Its standard output, which is also printed unless `quiet`.

        Raises
        ------
        FlextraceError
            It failed.
        """
        typed = [str(word) for word in words]
        print(f"\n$ {' '.join(_short(word) for word in typed)}", flush=True)
        real = [sys.executable, "-m", "flextrace", *typed[1:]] if typed[0] == "flextrace" else typed
        begin = time.monotonic()
        process = subprocess.Popen(real, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        try:
            text, _ = process.communicate()
        except BaseException:
            _stop(process)
            raise
        if text.strip() and not quiet:
            print(text.rstrip())
        print(f"  [{time.monotonic() - begin:.1f} s]", flush=True)
        if process.returncode == NOT_TRUSTWORTHY:
            self.doubts.append(" ".join(typed[:2]))
            print("  exit code 3: it says itself that this result is not to be trusted; see above")
        elif process.returncode:
            raise FlextraceError(
                f"the demo's step '{' '.join(typed[:3])} ...' failed with exit code {process.returncode}"
            )
        return text

    def title(self, text: str) -> None:
        """A headline with the time since the start."""
        print(f"\n=== {text}  ({time.monotonic() - self.started:.0f} s since the start) ===", flush=True)


def _stop(process: subprocess.Popen[str]) -> None:
    """End a step that we started; the verbs clean up after SIGINT."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _short(word: str) -> str:
    """A path relative to where the user is."""
    return os.path.relpath(word) if word.startswith("/") and word.startswith(str(Path.cwd())) else word


def make_inputs(demo: Demo) -> list[Application]:
    """Make the text and the database; returns what to record."""
    demo.title("Inputs")
    text, bank, temporary = demo.work / "lines.txt", demo.work / "bank.db", demo.work / "sort-temporary"
    temporary.mkdir()
    size = write_sort_input(text, demo.sizes.sort_bytes)
    print(f"{_short(str(text))}: {size / 1e6:.0f} MB of random lines; sort has {demo.sizes.sort_buffer}, so it merges")
    program = ROOT / "build/tests/debit_credit"
    demo.command(program, bank, "--accounts", demo.sizes.accounts)
    sort = [
        "sort",
        "--parallel=1",
        "-S",
        demo.sizes.sort_buffer,
        "-T",
        str(temporary),
        "-o",
        str(demo.work / "sorted.txt"),
    ]
    return [
        Application("sort", [*sort, str(text)], [text]),
        Application("debit-credit", [str(program), str(bank), "--transactions", str(demo.sizes.transactions)], [bank]),
    ]


def record(demo: Demo, application: Application) -> tuple[Path, dict[str, float]]:
    """Record an application at both layers, from a warm page cache as Willy's; the trace, and its parameters."""
    demo.title(f"{application.name}: record and characterize")
    trace = demo.output / f"{application.name}.iotrace"
    options = ["--force", "--memory", demo.sizes.memory]
    for path in application.inputs:
        options += ["--warm", str(path)]
    demo.command("flextrace", "record", *options, "-o", trace, "--", *application.command)
    document = characterize(demo, trace)
    print(f"\n  {'':22}{'VFS layer':>16}{'block layer':>16}")
    for name in PARAMETERS:
        cells = "".join(f"{_cell(document['layers'][layer]['parameters'][name]):>16}" for layer in ("vfs", "block"))
        print(f"  {name:22}{cells}")
    vfs = document["layers"]["vfs"]
    for name in ("coldFrac", "syncFrac", "appendFrac"):
        print(f"  {name:22}{_cell(vfs['extended'][name]):>16}")
    print(f"  {'time in I/O, sync, s':22}{vfs['time_in_io_s']:>16.3g}{vfs['time_in_sync_s']:>16.3g}")
    return trace, vfs["parameters"]


def characterize(demo: Demo, trace: Path, *options: str) -> dict[str, Any]:
    """The characterization document of a trace."""
    return json.loads(demo.command("flextrace", "characterize", trace, "--format", "json", *options, quiet=True))


def _cell(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def replay_recorded(demo: Demo, trace: Path) -> dict[str, Any]:
    """Replay a trace, recording the replay, and return what the recording says it did.

    The image is laid out outside the memory group, since the pages of whoever lays it out stay charged to him; the
    engine itself is recorded, not the Python around it, and only in its directory, so that nothing but the replayed
    operations is in the trace. The engine maps what it reads back into the cache, and replays mapped reads as reads, so
    page faults do not count.
    """
    directory = demo.work / "replay"
    directory.mkdir()
    try:
        engine = [find_binary("flextrace-replay"), trace, "--directory", directory, "--keep-image", "--phase"]
        demo.command(*engine, "prepare", quiet=True)
        again = trace.with_suffix(".replayed.iotrace")
        result = demo.command(
            "flextrace", "record", "--force", "--quiet", "--layer", "vfs", "--memory", demo.sizes.memory, "-o", again,
            "--path", directory.resolve(), "--", *engine, "run", quiet=True,
        )  # fmt: skip
        document = json.loads(result[result.index("{") :])
        counts = document["operations"]
        print(
            f"  {counts['records']} operations: {counts['done']} done, {counts['short']} short, "
            f"{counts['failed']} failed, {counts['skipped']} skipped; "
            f"{document['throughput_in_io_bytes_per_s'] / 1e6:.1f} MB/s in I/O, {document['elapsed_s']:.2f} s"
        )
        # What the engine's main thread does has the files ready, in folios of the recorded size.
        players = again.with_suffix(".players.iotrace")
        demo.command("flextrace", "cut", again, "-o", players, "--force", "--comm", "play *", quiet=True)
        return characterize(demo, players, "--mmap", "none")
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def alter_and_replay(demo: Demo, application: Application, trace: Path, original: dict[str, float]) -> list[Path]:
    """Replay as recorded, and with one parameter changed; print wanted beside achieved."""
    demo.title(f"{application.name}: replay as recorded and altered")
    replayed = replay_recorded(demo, trace)["layers"]["vfs"]["parameters"]
    print_achieved("replayed as recorded", original, {}, original, replayed)
    altered = []
    for parameter, (option, change) in ALTERATIONS.items():
        path = demo.output / f"{application.name}-{parameter}-{change}.iotrace"
        try:
            demo.command("flextrace", "alter", trace, "-o", path, "--force", option, change)
        except FlextraceError:
            print("  this change is not reachable on this recording; see above")
            demo.doubts.append(f"flextrace alter {option} {change} on {application.name}")
            continue
        achieved = characterize(demo, path)["layers"]["vfs"]["parameters"]
        replayed = replay_recorded(demo, path)["layers"]["vfs"]["parameters"]
        wanted = {parameter: original[parameter] * float(change.rstrip("x"))}
        print_achieved(f"{parameter} {change}", original, wanted, achieved, replayed)
        altered.append(path)
    return altered


def print_achieved(
    title: str,
    original: dict[str, float],
    wanted: dict[str, float],
    achieved: dict[str, float],
    replayed: dict[str, float],
) -> None:
    """A table of the five: the original's, what was wanted, the trace's, and what a recording of its replay has."""
    print(f"\n  {title:22}{'original':>14}{'wanted':>14}{'in the trace':>14}{'replayed':>14}{'off by':>9}")
    for name in PARAMETERS:
        target = wanted.get(name, original[name])
        off = replayed[name] / target - 1 if target and replayed[name] is not None else None
        cells = [
            _cell(original[name]),
            _cell(target) if name in wanted else "held",
            _cell(achieved[name]),
            _cell(replayed[name]),
        ]
        line = "".join(f"{cell:>14}" for cell in cells)
        print(f"  {name:22}{line}{'-' if off is None else f'{off:+.1%}':>9}")


def scale(demo: Demo) -> Path:
    """Measure this machine once, confined to the same memory as the applications."""
    demo.title("This machine: the self-scaling benchmark")
    profile, directory = demo.output / "profile.json", demo.work / "scale"
    directory.mkdir()
    options = ["--memory", demo.sizes.memory, "--budget", demo.sizes.scale_budget, "-o", profile, "--force"]
    demo.command("flextrace", "scale", "--directory", directory, *options)
    shutil.rmtree(directory, ignore_errors=True)
    return profile


def compare(demo: Demo, application: Application, trace: Path, profile: Path) -> tuple[Path, str]:
    """Compare an application with its replay, Willy and the prediction; returns the document and the table."""
    demo.title(f"{application.name}: compare")
    document = demo.output / f"{application.name}.comparison.json"
    options = [
        "--profile",
        profile,
        "--directory",
        demo.work,
        "--memory",
        demo.sizes.memory,
        "--repeat",
        demo.sizes.repeat,
    ]
    options += ["--max-time", demo.sizes.willy_seconds, "-o", document, "--force"]
    return document, demo.command("flextrace", "compare", trace, *options, quiet=True)


def run(demo: Demo) -> None:
    """The main job."""
    applications = make_inputs(demo)
    recorded = {application.name: record(demo, application) for application in applications}
    traces = {name: trace for name, (trace, _) in recorded.items()}
    demo.command(ROOT / "build/tests/debit_credit", demo.work / "bank.db", "--check")
    altered: list[Path] = []
    for application in applications:
        altered += alter_and_replay(demo, application, *recorded[application.name])
    profile = scale(demo)
    tables, documents = {}, []
    for application in applications:
        document, tables[application.name] = compare(demo, application, traces[application.name], profile)
        documents.append(document)
    demo.title("Report")
    report = demo.output / "report.html"
    options: list[object] = [
        "--profile",
        profile,
        "--trace",
        *traces.values(),
        *altered,
        "--comparison",
        *documents,
        "--force",
    ]
    demo.command("flextrace", "report", "-o", report, *options, quiet=True)
    for name, table in tables.items():
        print(f"\n=== {name} ===\n{table.rstrip()}")
    for doubt in dict.fromkeys(demo.doubts):
        print(f"\nnot trustworthy by its own word: {doubt}")
    print(f"\nwhole demo: {time.monotonic() - demo.started:.0f} s")
    print(f"report: {report}")


def main(argv: Sequence[str]) -> int:
    """Run the demo; the exit code is 0, 1 (a step failed) or 130 (Ctrl-C)."""
    parser = argparse.ArgumentParser(prog="python -m tests.demo.demo", description=__doc__)
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="where the results go")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, for a test of the demo itself")
    arguments = parser.parse_args(argv)
    output = arguments.output.resolve()
    work = output / "work"
    try:
        output.mkdir(parents=True, exist_ok=True)
        sizes = QUICK if arguments.quick else Sizes()
        require(sizes, output)
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        run(Demo(output, work, sizes))
        return 0
    except FlextraceError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("demo: interrupted", file=sys.stderr)
        return 130
    finally:
        shutil.rmtree(work, ignore_errors=True)
        _give_back(output)


def _give_back(output: Path) -> None:
    """Under sudo, make the results the user's who asked for them."""
    user, group = os.environ.get("SUDO_UID"), os.environ.get("SUDO_GID")
    if user and group and os.geteuid() == 0 and output.is_dir():
        for path in [output, *output.rglob("*")]:
            os.chown(path, int(user), int(group), follow_symlinks=False)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

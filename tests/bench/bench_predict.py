# SPDX-License-Identifier: Apache-2.0
"""How well lab machines, and applications on them, are predicted, beside the targets: ``make bench-predict``.

Every machine is made, measured in stages (tests/bench/lab_measurements.py) and taken away. The raw numbers are saved
after every stage: a run that was interrupted goes on where it ended when it is started again with the same settings,
and --from prints the tables of a file again. An error on one machine is printed, and the others go on.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import platform
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from characterize.units import parse_duration
from flextrace.output.measuring_progress import Progress
from flextrace.runs import measuring
from flextrace.runs.interruption import terminated_as_interrupted
from replayer.running.confine import MemoryGroup
from selfscale.measuring.access import Access
from selfscale.measuring.environment import environment
from selfscale.predict import record_scores
from selfscale.profile import Profile
from tests.bench.lab_applications import APPLICATIONS, predict_application, record_applications
from tests.bench.lab_machines import DEFAULT, MACHINES, QUICK, LabMachine, lab_machine
from tests.bench.lab_measurements import (
    POINTS_MANY,
    Document,
    Effort,
    explore,
    grown_profile,
    measure_stages,
    settings_of,
)
from tests.bench.predict_figures import tables_of

SCHEMA = "flextrace-bench-predict 1"
PARTS = ("machines", "applications")
LAST_STAGE = "prediction_ms"
INTERRUPTED = 130


def main() -> int:
    """Measure what is not measured yet, and print every table."""
    arguments = parse_arguments()
    if arguments.source:
        document = json.loads(arguments.source.read_text())
        if document.get("schema") != SCHEMA:
            sys.exit(f"{arguments.source} was not written by this benchmark: name its --output")
        print_tables(document)
        return 0
    document = opened(arguments)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    save = saver(arguments.output, document)
    code = 0
    with terminated_as_interrupted():
        try:
            for name in arguments.machines:
                guarded(
                    document,
                    f"machine {name}",
                    lambda name=name: measure_machine(arguments, document, MACHINES[name], save),
                )
                save()
            if "applications" in arguments.only:
                guarded(document, "predictions", lambda: predict_applications(arguments, document))
                save()
        except KeyboardInterrupt:
            _say(f"interrupted; what was measured is in {arguments.output}, the same command goes on")
            code = INTERRUPTED
    print_tables(document)
    _say(f"every measured point is in {arguments.output}")
    return code or int(bool(document["errors"]))


def parse_arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = "; ".join(f"{machine.name}: {machine.title}" for machine in MACHINES.values())
    parser.add_argument("--machines", metavar="NAME,...", help=f"default {','.join(DEFAULT)}; there are {known}")
    parser.add_argument("--budget", type=parse_duration, metavar="TIME", help="of each exploration (250s; quick: 120s)")
    parser.add_argument("--points", type=int, metavar="N", help=f"in the end ({POINTS_MANY}; quick: 120)")
    parser.add_argument("--workloads", type=int, metavar="N", help="random ones, measured twice (100; quick: 30)")
    parser.add_argument("--max-time", type=parse_duration, default=3.0, metavar="TIME", help="of a point (3s)")
    parser.add_argument("--application-runs", type=int, metavar="N", help="of each on each machine (2; quick: 1)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help=f"{' and '.join(QUICK)} with less effort: 25 minutes")
    parser.add_argument("--only", default=",".join(PARTS), metavar="PART,...", help="machines, applications, or both")
    parser.add_argument(
        "--directory", type=Path, default=Path("build"), metavar="DIR", help="on the disk to use (build)"
    )
    parser.add_argument("--output", type=Path, default=Path("build/bench-predict.json"), metavar="FILE.json")
    parser.add_argument("--force", action="store_true", help="forget what FILE.json has")
    parser.add_argument(
        "--from", dest="source", type=Path, metavar="FILE.json", help="print its tables, measure nothing"
    )
    arguments = parser.parse_args(words)
    for name, usual, quick in (
        ("budget", 250.0, 120.0),
        ("points", POINTS_MANY, 120),
        ("workloads", 100, 30),
        ("application_runs", 2, 1),
        ("machines", ",".join(DEFAULT), ",".join(QUICK)),
    ):
        if getattr(arguments, name) is None:
            setattr(arguments, name, quick if arguments.quick else usual)
    for name, choices in (("machines", MACHINES), ("only", PARTS)):
        chosen = getattr(arguments, name).split(",")
        setattr(arguments, name, chosen)
        if unknown := [word for word in chosen if word not in choices]:
            parser.error(f"--{name} has {', '.join(unknown)}: choose from {', '.join(choices)}")
    for name in ("points", "workloads", "application_runs"):
        if getattr(arguments, name) < 1:
            parser.error(f"--{name.replace('_', '-')} is at least 1")
    return arguments


def effort_of(arguments: argparse.Namespace) -> Effort:
    """How much is measured on every machine."""
    return Effort(arguments.budget, arguments.points, arguments.workloads, arguments.max_time, seed=arguments.seed)


def opened(arguments: argparse.Namespace) -> Document:
    """What the output has already, or a new document."""
    effort = asdict(effort_of(arguments))
    new: Document = {
        "schema": SCHEMA,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": sys.argv,
        "effort": effort,
        "host": {"kernel": platform.release(), "cpus": len(os.sched_getaffinity(0)), "load": os.getloadavg()},
        "machines": {},
        "predictions": [],
        "errors": {},
    }
    if arguments.force or not arguments.output.exists():
        return new
    old: Document = json.loads(arguments.output.read_text())
    if old.get("schema") != SCHEMA or old["effort"] != effort:
        sys.exit(f"{arguments.output} was measured with other settings: choose another --output, or give --force")
    old["errors"] = {}
    return old


def saver(output: Path, document: Document) -> Callable[[], None]:
    """What writes the document, all of it or nothing."""

    def save() -> None:
        partial = output.with_name(output.name + ".partial")
        partial.write_text(json.dumps(document, indent=1) + "\n")
        partial.replace(output)

    return save


def guarded(document: Document, what: str, work: Callable[[], None]) -> None:
    """Do it; an error is printed and kept, and does not end the run."""
    try:
        work()
    except Exception as error:  # whatever goes wrong on one machine, the others can be measured
        traceback.print_exc()
        document["errors"][what] = f"{type(error).__name__}: {error}"


def measure_machine(
    arguments: argparse.Namespace, document: Document, machine: LabMachine, save: Callable[[], None]
) -> None:
    """Make it, measure what is missing, take it away."""
    record = document["machines"].setdefault(machine.name, {"machine": asdict(machine)})
    applications = record.setdefault("applications", {})
    missing = [application for application in APPLICATIONS if application.name not in applications]
    wanted = "machines" in arguments.only and LAST_STAGE not in record
    recorded = "applications" in arguments.only and bool(missing)
    if not wanted and not recorded:
        _say(f"{machine.name}: measured already")
        return
    _say(f"{machine.name}: {machine.title}")
    arguments.directory.mkdir(parents=True, exist_ok=True)
    with lab_machine(machine, arguments.directory.resolve()) as place:
        if wanted or "profile" not in record:
            guarded(
                document, f"{machine.name}, points", lambda: measure_points(arguments, record, machine, place, save)
            )
        for application in missing if recorded else []:
            what = f"{machine.name}, {application.name}"

            def run(application: Any = application) -> None:
                trace = trace_of(arguments.output, machine.name, application.name)
                trace.parent.mkdir(exist_ok=True)
                applications[application.name] = record_applications(
                    application, place, machine.memory_bytes, trace, runs=arguments.application_runs
                )

            _say(what)
            guarded(document, what, run)
            save()


def measure_points(
    arguments: argparse.Namespace, record: Document, machine: LabMachine, place: Path, save: Callable[[], None]
) -> None:
    """The stages of a machine, or its exploration alone where only applications are asked for."""
    effort = effort_of(arguments)
    settings = settings_of(machine.memory_bytes, effort)
    with MemoryGroup(machine.memory_bytes) as group, measuring.image_directory(place, keep=False) as image:
        measuring.lay_out(settings, image, _say)
        measuring.age_cache(settings, image, group, Access(), _say, budget_s=effort.budget_s)
        progress = Progress(math.inf, 0, lambda text: _say(f"{machine.name}: {text}"))
        measure = progress.wrap(measuring.measure_in(image, group, Access()))
        facts = environment(image, machine.memory_bytes)
        if "machines" in arguments.only:
            measure_stages(record, settings, measure, effort, save, environment=facts)
        else:
            record["profile"] = explore(settings, measure, facts).as_document()
            save()


def trace_of(output: Path, machine: str, application: str) -> Path:
    """Where a recording is kept: beside the output, for the predictions at the end."""
    return output.with_name(output.stem + "-traces") / f"{application.lower()}-{machine}.iotrace"


def predict_applications(arguments: argparse.Namespace, document: Document) -> None:
    """Predict every application on every machine but the one whose recording is used, the first that has it."""
    document["predictions"] = []
    machines = {name: record for name, record in document["machines"].items() if "profile" in record}
    with tempfile.TemporaryDirectory(prefix="flextrace-bench-predict-") as scratch:
        profiles = {}
        for name, record in machines.items():
            profile: Profile = grown_profile(record, POINTS_MANY)
            record_scores(profile)  # or every prediction would cross-validate it
            profiles[name] = profile.save(Path(scratch) / f"{name}.json")
        for application in APPLICATIONS:
            having = [name for name, record in machines.items() if record["applications"].get(application.name)]
            if having:
                what = f"prediction of {application.name}"
                _say(what)
                guarded(
                    document,
                    what,
                    lambda names=having, app=application: _predict(arguments, document, app, names, profiles),
                )


def _predict(
    arguments: argparse.Namespace, document: Document, application: Any, names: list[str], profiles: dict[str, Path]
) -> None:
    first, *others = names
    trace = trace_of(arguments.output, first, application.name)
    for name in others:
        runs = document["machines"][name]["applications"][application.name]
        measured = {
            f"measured_{what}": sum(run[what] for run in runs) / len(runs) for what in ("bytes_per_s", "elapsed_s")
        }
        document["predictions"] += [
            {"application": application.name, "recorded_on": first, "predicted_on": name, **predicted, **measured}
            for predicted in predict_application(trace, profiles[name], profiles[first])
        ]


def print_tables(document: Document) -> None:
    """Every table of the document, what was not measured, and what was missed."""
    host, effort = document["host"], document["effort"]
    print(f"kernel {host['kernel']}, {host['cpus']} processors, load average at the start {host['load'][0]:.1f}")
    print(f"effort: {', '.join(f'{name} {value:g}' for name, value in effort.items())}")
    missed = met = 0
    for title, table in tables_of(document):
        print(f"\n{title}")
        print(table.to_string(index=False, float_format=lambda value: f"{value:,.4g}"), flush=True)
        if "met" in table:
            missed += int((table["met"] == "NO").sum())
            met += int((table["met"] == "yes").sum())
    print(f"\n{met} bars met, {missed} missed")
    for what, why in document["errors"].items():
        print(f"not measured: {what}: {why}")


def _say(text: str) -> None:
    print(f"bench-predict: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())

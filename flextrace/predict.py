# SPDX-License-Identifier: Apache-2.0
"""Turns a profile and a workload, or a trace, into an estimated throughput: ``flextrace predict``."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from characterize.errors import FlextraceError
from characterize.trace_files.provenance import command_words, provenance_of
from characterize.units import format_bytes, parse_fraction, parse_size
from flextrace.options.output_format import add_format_argument
from flextrace.options.table_settings import add_settings_argument, parse_settings
from flextrace.output import prediction_text
from flextrace.output.talk import say

if TYPE_CHECKING:
    from characterize.workload import Workload
    from selfscale.predict import Predictor
    from selfscale.predicting.application import Application
    from selfscale.predicting.estimates import Estimate, Relative
    from selfscale.predicting.relative import Ratio
    from selfscale.profile import Profile
    from selfscale.profiles.repeatability import Repeatability

SCHEMA = "flextrace.prediction/1"
OPTIONS: dict[str, tuple[Callable[[str], float], str, str]] = {
    "unique_bytes": (parse_size, "SIZE", "bytes of different data that are touched"),
    "seq_frac": (parse_fraction, "SHARE", "share of requests that follow the one before"),
    "read_frac": (parse_fraction, "SHARE", "share of requests that read"),
    "size_mean": (parse_size, "SIZE", "mean bytes per request"),
    "process_num": (float, "N", "requests in flight at once"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``flextrace predict``."""
    parser.add_argument(
        "profile",
        type=Path,
        metavar="PROFILE.json",
        help="a machine, measured by 'flextrace scale', or a table, by 'flextrace fit'",
    )
    parser.add_argument(
        "--trace",
        type=Path,
        metavar="FILE",
        help="predict the application of this trace, recorded or altered: by its five parameters, and by a simulation "
        "of its operations where the profile tells enough",
    )
    workload = parser.add_argument_group(
        "workload", "All five, or those in which it is to differ from --trace (then nothing is simulated)."
    )
    for name, (kind, metavar, text) in OPTIONS.items():
        workload.add_argument(f"--{name.replace('_', '-')}", type=kind, metavar=metavar, help=text)
    add_settings_argument(workload)
    parser.add_argument(
        "--model",
        default="best",
        metavar="NAME",
        help="product, orthogonal, utilization, learned, traffic, combined (of tables additive, pairwise, smooth, "
        "product, utilization, learned), or best (default): the one with the smallest cross-validated error; combined "
        "is the mean of learned and traffic, and stands for both",
    )
    parser.add_argument(
        "--against", type=Path, metavar="OTHER.json", help="also say how many times as fast as that machine this one is"
    )
    parser.add_argument(
        "--measured-on",
        type=Path,
        metavar="OTHER.json",
        help="the machine that --trace was recorded on: also predict relative to how the application ran there",
    )
    add_format_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print one prediction, or two for a trace: with its footprint and with its equivalent uniqueBytes.

    3 if the trace lacks records.
    """
    from characterize.document import plain  # noqa: PLC0415 (pandas only after the cheap refusals)
    from selfscale.predict import predictor_of  # noqa: PLC0415
    from selfscale.predicting.estimates import estimates  # noqa: PLC0415
    from selfscale.predicting.mismatches import mismatches, recorded_machine  # noqa: PLC0415
    from selfscale.predicting.treatment import treatment  # noqa: PLC0415
    from selfscale.profile import Profile  # noqa: PLC0415
    from selfscale.profiles.table_profile import known_settings  # noqa: PLC0415

    changes = {name: getattr(arguments, name) for name in OPTIONS if getattr(arguments, name) is not None}
    if arguments.measured_on is not None and (arguments.trace is None or changes):
        raise FlextraceError(
            "--measured-on takes an application as it was recorded: give --trace FILE, and no changed parameter", 2
        )
    _check_sizes(changes)
    settings = parse_settings(arguments.settings)
    profile = Profile.load(arguments.profile, tables=True)
    # Before the trace is read, which may take long.
    origin, against = (
        None if path is None else Profile.load(path, tables=True) for path in (arguments.measured_on, arguments.against)
    )
    application = _application(arguments, changes, profile)
    if changes and not profile.table:
        _check_fits(application.workloads[0][1])
    predictor = predictor_of(arguments.profile, profile, arguments.model, settings)
    warnings = application.warnings
    warnings += mismatches(application, arguments.profile, predictor)
    measured_on = None
    if origin is not None:
        path = arguments.measured_on
        measured_on, found = recorded_machine(application, origin, path, arguments.model, settings)
        warnings += found
    made = Made(application, estimates(predictor, application, measured_on), *treatment(application, predictor))
    if against is not None:
        of_other = known_settings(against, settings)
        other = predictor_of(arguments.against, against, arguments.model, of_other)
        warnings += mismatches(application, arguments.against, other)
        made.ratios = _ratios(made, other, measured_on)
    if measured_on is not None:
        made.relatives = _relatives(measured_on, made)
    if arguments.format == "json":
        print(json.dumps(plain(_document(arguments, profile, predictor, made)), indent=1, allow_nan=False))
    else:
        print("\n".join(_lines(arguments, profile, predictor, made)))
    for warning in dict.fromkeys(warnings):  # one profile may be named twice
        say("predict", f"warning: {warning}")
    return 0 if application.complete else 3


@dataclass
class Made:
    """All that is said."""

    application: Application
    estimates: list[Estimate]
    used: list[tuple[str, float, str]]
    ignored: list[tuple[str, float, str]]
    ratios: list[Ratio | None] = field(default_factory=list)
    relatives: list[Relative | None] = field(default_factory=list)


def _check_sizes(changes: dict[str, float]) -> None:
    """Models work on the logarithms of these."""
    for name in ("unique_bytes", "size_mean", "process_num"):
        if not 0 < changes.get(name, 1) < math.inf:
            raise FlextraceError(f"--{name.replace('_', '-')} {changes[name]:g}: give a number above 0", 2)
    if changes.get("process_num", 1) < 1:
        raise FlextraceError(f"--process-num {changes['process_num']:g}: give a number of at least 1", 2)


def _check_fits(workload: Workload) -> None:
    """No request touches more than all that is touched."""
    if workload.size_mean > workload.unique_bytes:
        raise FlextraceError(
            f"requests of {format_bytes(workload.size_mean)} touch more than {format_bytes(workload.unique_bytes)}: "
            "give a smaller --size-mean, or a larger --unique-bytes",
            2,
        )


def _application(arguments: argparse.Namespace, changes: dict[str, float], profile: Profile) -> Application:
    from characterize.workload import FIELD_OF, Workload  # noqa: PLC0415
    from selfscale.predicting.application import Application, application_of  # noqa: PLC0415

    if arguments.trace is not None:
        return application_of(arguments.trace, changes)
    needed = [FIELD_OF[name] for name in profile.table["parameters"]] if profile.table else list(OPTIONS)
    missing = [f"--{name.replace('_', '-')}" for name in needed if name not in changes]
    if missing:
        which = "the parameters of the table" if profile.table else "all five parameters"
        raise FlextraceError(f"a workload needs {which}: add {', '.join(missing)}, or give --trace FILE", 2)
    return Application([("as given", Workload(**{name: float(changes.get(name, math.nan)) for name in OPTIONS}))])


def _ratios(made: Made, other: Predictor, measured_on: Predictor | None) -> list[Ratio | None]:
    """How many times as fast as the other machine this one is (thesis 5.5), None where the other has no estimate."""
    from selfscale.predicting.estimates import estimates, with_basis  # noqa: PLC0415
    from selfscale.predicting.relative import ratio_of  # noqa: PLC0415

    there = estimates(other, made.application, measured_on=measured_on)
    ratios: list[Ratio | None] = []
    for estimate in made.estimates:
        match = with_basis(there, estimate.basis)
        one = estimate.prediction.estimated
        ratios.append(ratio_of(one, match.prediction.estimated, match.prediction.outside) if match else None)
    return ratios


def _relatives(measured_on: Predictor, made: Made) -> list[Relative | None]:
    """What follows from the application's run on the machine of --measured-on, for every estimate."""
    from selfscale.predicting.estimates import estimates, relative_of, with_basis  # noqa: PLC0415

    there = estimates(measured_on, made.application)
    pairs = [(estimate, with_basis(there, estimate.basis)) for estimate in made.estimates]
    return [relative_of(here, match) if match else None for here, match in pairs]


def _lines(arguments: argparse.Namespace, profile: Profile, predictor: Predictor, made: Made) -> list[str]:
    from selfscale.predicting.no_simulation import no_simulation  # noqa: PLC0415

    lines = []
    for number, estimate in enumerate(made.estimates):
        lines += prediction_text.estimate_lines(profile, estimate)
        if made.ratios and (ratio := made.ratios[number]):
            lines += prediction_text.ratio_lines(arguments.against.name, ratio)
        lines += prediction_text.application_lines(made.application, estimate)
        if made.relatives and (relative := made.relatives[number]):
            lines += prediction_text.relative_lines(arguments.measured_on.name, estimate, relative)
    if arguments.trace is not None:
        nothing = no_simulation(predictor)
        unsimulated = f"nothing is simulated from {arguments.profile}, which {nothing.reason}" if nothing else ""
        lines += prediction_text.recorded_lines(made.application, made.estimates[0], unsimulated)
    lines += prediction_text.models_lines(predictor.scores, predictor.score.model, _repeatability(profile))
    but = " by all but the simulation" if any(estimate.simulated for estimate in made.estimates) else ""
    return [
        *lines,
        *prediction_text.treatment_lines(f"used{but}", made.used),
        *prediction_text.treatment_lines(f"ignored{but}", made.ignored),
    ]


def _repeatability(profile: Profile) -> Repeatability | None:
    """How far equal measurements of the machine lay apart; None of a table."""
    from selfscale.profiles.repeatability import repeatability  # noqa: PLC0415

    return None if profile.table else repeatability(profile.measured, profile.regions)


def _document(arguments: argparse.Namespace, profile: Profile, predictor: Predictor, made: Made) -> dict[str, Any]:
    def input_of(path: Path | None) -> dict[str, Any] | None:
        return None if path is None else provenance_of(path)["input"]

    times = made.application.times
    repeated = _repeatability(profile)
    return {
        "schema": SCHEMA,
        **provenance_of(arguments.trace),
        "command": command_words(),
        "profile": {**provenance_of(arguments.profile)["input"], "complete": profile.complete, "seed": profile.seed},
        "predictions": [
            {
                "basis": estimate.basis,
                "workload": estimate.workload.as_document(),
                **estimate.prediction.as_document(),
                "application": prediction_text.document_of(estimate),
            }
            for estimate in made.estimates
        ],
        "recorded": None if times is None else {**asdict(times), "outside_s": times.outside_s},
        "models": [asdict(score) for score in predictor.scores],
        "repeatability": asdict(repeated) if repeated else None,
        "against": input_of(arguments.against),
        "ratios": [asdict(ratio) if ratio else None for ratio in made.ratios],
        "measured_on": input_of(arguments.measured_on),
        "relative": [asdict(relative) if relative else None for relative in made.relatives],
        "extended": made.application.extended,
        "used": [name for name, _, _ in made.used],
        "ignored": [name for name, _, _ in made.ignored],
        "unknown": [name for name, value, _ in made.ignored if math.isnan(value)],
        "warnings": list(dict.fromkeys(made.application.warnings)),
    }

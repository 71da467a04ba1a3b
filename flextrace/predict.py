# SPDX-License-Identifier: Apache-2.0
"""Turns a profile and a workload, or a trace, into an estimated throughput: ``flextrace predict``."""

from __future__ import annotations

import argparse
import json
import math
import sys
import textwrap
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from characterize.errors import FlextraceError
from characterize.units import format_bytes, parse_fraction, parse_size

if TYPE_CHECKING:
    from characterize.workload import Workload
    from selfscale.cross_validation import Score
    from selfscale.predict import Prediction
    from selfscale.profile import Profile

SCHEMA = "flextrace.prediction/1"
WIDTH = 98
OPTIONS: dict[str, tuple[Callable[[str], float], str, str]] = {
    "unique_bytes": (parse_size, "SIZE", "bytes of different data that are touched"),
    "seq_frac": (parse_fraction, "FRACTION", "share of requests that follow the one before"),
    "read_frac": (parse_fraction, "FRACTION", "share of requests that read"),
    "size_mean": (parse_size, "SIZE", "mean bytes per request"),
    "process_num": (float, "N", "requests in flight at once"),
}
IGNORED = {
    "coldFrac": (0.0, "reads of data that was not in the page cache: the prediction takes the cache as warm"),
    "appendFrac": (0.0, "writes that extend files: the prediction takes them as overwrites"),
    "syncFrac": (0.0, "syncs per write: the prediction has none, and time in sync is not part of it"),
    "syncWriteFrac": (0.0, "writes with O_SYNC or O_DSYNC: the prediction takes them as buffered"),
    "directFrac": (0.0, "requests with O_DIRECT: the prediction takes them as buffered"),
}
"""Extended parameters that the profile's workloads do not have: classic value, and what is ignored."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``flextrace predict``."""
    parser.add_argument("profile", type=Path, metavar="PROFILE.json", help="a machine, measured by 'flextrace scale'")
    parser.add_argument("--trace", type=Path, metavar="FILE", help="predict this trace, by its five parameters")
    workload = parser.add_argument_group("workload (all five, or those in which it differs from --trace)")
    for field, (kind, metavar, text) in OPTIONS.items():
        workload.add_argument(f"--{field.replace('_', '-')}", type=kind, metavar=metavar, help=text)
    parser.add_argument(
        "--model",
        default="best",
        metavar="NAME",
        help="product, orthogonal, utilization, learned, or best: the one with the smallest cross-validated error",
    )
    parser.add_argument(
        "--against", type=Path, metavar="OTHER.json", help="also the ratio of this machine's throughput to another's"
    )
    parser.add_argument("--format", choices=("text", "json"), default="text")


def run(arguments: argparse.Namespace) -> int:
    """Print one prediction, or two for a trace: with its footprint and with its equivalent uniqueBytes."""
    from selfscale.access import Access  # noqa: PLC0415
    from selfscale.predict import Predictor  # noqa: PLC0415
    from selfscale.profile import Profile  # noqa: PLC0415

    profile = Profile.load(arguments.profile)
    changes = {field: getattr(arguments, field) for field in OPTIONS if getattr(arguments, field) is not None}
    workloads, extended, warnings = _workloads(arguments, changes)
    if not profile.complete:
        warnings.append(f"profile {arguments.profile} is not complete; continue it with 'flextrace scale --resume'")
    predictor = Predictor(profile, arguments.model)
    predictions = [(basis, workload, predictor.predict(workload)) for basis, workload in workloads]
    ratios = _ratios(arguments, predictions)
    access = Access.of(profile.settings)
    warnings += access.contradictions(extended)
    ignored = [row for row in _ignored(extended) if access.cached or row[0] != "directFrac"]
    if arguments.format == "json":
        document = _document(
            arguments,
            profile,
            predictions=predictions,
            scores=predictor.scores,
            ratios=ratios,
            extended=extended,
            ignored=ignored,
            warnings=warnings,
        )
        print(json.dumps(document, indent=1))
    else:
        for number, (basis, workload, prediction) in enumerate(predictions):
            print(_text(profile, basis, workload, prediction))
            if ratios:
                print(_ratio_text(arguments.against, ratios[number]))
        print(_models_text(predictor.scores, predictor.score.model))
        for name, value, text in ignored:
            print(f"ignored: {name} {value:.3g} ({text})")
    for warning in warnings:
        print(f"flextrace predict: {warning}", file=sys.stderr)
    return 0


def _workloads(
    arguments: argparse.Namespace, changes: dict[str, float]
) -> tuple[list[tuple[str, Workload]], dict[str, Any], list[str]]:
    """Workloads to predict with what they are based on, the trace's extended parameters, and its warnings."""
    from characterize.workload import Workload  # noqa: PLC0415

    if arguments.trace is None:
        missing = [f"--{field.replace('_', '-')}" for field in OPTIONS if field not in changes]
        if missing:
            raise FlextraceError(
                f"a workload needs all five parameters: add {', '.join(missing)}, or give --trace FILE", 2
            )
        return [("as given", Workload(**{name: float(value) for name, value in changes.items()}))], {}, []
    import characterize  # noqa: PLC0415
    from characterize.characterization import characterize as characterization_of  # noqa: PLC0415

    characterization = characterization_of(characterize.open(arguments.trace))
    layer = characterization.layers["vfs"]
    if not layer.requests:
        raise FlextraceError(f"{arguments.trace} has no request of an application: record it with --layer vfs or both")
    changed = f", {', '.join(sorted(changes))} as given" if changes else ""
    footprint = layer.parameters.replace(**{name: float(value) for name, value in changes.items()})
    workloads = [(f"uniqueBytes = footprint of the trace{changed}", footprint)]
    equivalent = layer.locality.equivalent_unique_bytes
    if "unique_bytes" not in changes and math.isfinite(equivalent) and equivalent > 0:
        basis = f"uniqueBytes = 2 x mean LRU depth of the trace{changed}"
        workloads.append((basis, footprint.replace(unique_bytes=equivalent)))
    return workloads, layer.extended, list(characterization.warnings)


def _ignored(extended: dict[str, Any]) -> list[tuple[str, float, str]]:
    """Extended parameters of the trace that differ from what the profile was measured with."""
    return [
        (name, extended[name], text)
        for name, (classic, text) in IGNORED.items()
        if isinstance(extended.get(name), float) and math.isfinite(extended[name]) and extended[name] > classic + 0.005
    ]


def _ratios(arguments: argparse.Namespace, predictions: list[tuple[str, Workload, Prediction]]) -> list[dict[str, Any]]:
    """How many times as fast as the other machine this one is, for every prediction (thesis 5.5)."""
    from selfscale.predict import Predictor, ratio_of  # noqa: PLC0415
    from selfscale.profile import Profile  # noqa: PLC0415

    if arguments.against is None:
        return []
    other = Predictor(Profile.load(arguments.against), arguments.model)
    return [asdict(ratio_of(prediction, other.predict(workload))) for _, workload, prediction in predictions]


def _ratio_text(other: Path, ratio: dict[str, Any]) -> str:
    outside = f"; OUTSIDE the other's measured range in {', '.join(ratio['outside'])}" if ratio["outside"] else ""
    return (
        f"  {ratio['ratio']:.3g} times the throughput of {other.name}, 90 % interval {ratio['interval_low']:.3g} to "
        f"{ratio['interval_high']:.3g}{outside}"
    )


def _text(profile: Profile, basis: str, workload: Workload, prediction: Prediction) -> str:
    region = profile.regions[prediction.region] if profile.regions else None
    where = (
        f"region {prediction.region + 1} of {len(profile.regions)} "
        f"({format_bytes(region.low_bytes)} to {format_bytes(region.high_bytes)})"
        if region
        else "no regions"
    )
    lines = [
        f"{basis}:",
        f"  uniqueBytes {format_bytes(workload.unique_bytes)}, seqFrac {workload.seq_frac:.3g}, "
        f"readFrac {workload.read_frac:.3g}, sizeMean {format_bytes(workload.size_mean)}, "
        f"processNum {workload.process_num:g}",
        f"  throughput {prediction.throughput_bytes_per_s / 1e6:.4g} MB/s, 90 % interval "
        f"{prediction.interval_low / 1e6:.4g} to {prediction.interval_high / 1e6:.4g} MB/s",
        f"  model {prediction.model}, {where}, {len(prediction.points_used)} points",
    ]
    for part in prediction.extended_note.split(";"):
        lines += textwrap.wrap(part.strip(), WIDTH, initial_indent="  ", subsequent_indent="    ")
    if not prediction.inside_range:
        lines.append(f"  OUTSIDE the measured range in {', '.join(prediction.outside)}")
    lines += [f"  {note}" for note in prediction.notes]
    return "\n".join(lines)


def _models_text(scores: list[Score], used: str) -> str:
    """One line of all models' errors."""
    parts = []
    for score in scores:
        if score.usable:
            mark = " (used)" if score.model == used else ""
            parts.append(f"{score.model}{mark} {score.errors['median']:.0%} / {score.errors['p90']:.0%}")
    left_out = [f"{score.model} (not fitted)" for score in scores if not score.usable]
    text = "cross-validated error, median / 90th percentile: " + ", ".join(parts + left_out)
    return "\n".join(textwrap.wrap(text, WIDTH, subsequent_indent="  "))


def _document(
    arguments: argparse.Namespace,
    profile: Profile,
    *,
    predictions: list[tuple[str, Workload, Prediction]],
    scores: list[Score],
    ratios: list[dict[str, Any]],
    extended: dict[str, Any],
    ignored: list[tuple[str, float, str]],
    warnings: list[str],
) -> dict[str, Any]:
    from characterize.document import plain  # noqa: PLC0415
    from characterize.provenance import provenance_of  # noqa: PLC0415

    return {
        "schema": SCHEMA,
        **provenance_of(arguments.trace),
        "command": ["flextrace", *sys.argv[1:]],
        "profile": {**provenance_of(arguments.profile)["input"], "complete": profile.complete, "seed": profile.seed},
        "predictions": [
            {"basis": basis, "workload": workload.as_document(), **plain(prediction.as_document())}
            for basis, workload, prediction in predictions
        ],
        "models": [plain(asdict(score)) for score in scores],
        "against": None if arguments.against is None else provenance_of(arguments.against)["input"],
        "ratios": ratios,
        "extended": plain(extended),
        "ignored": [name for name, _, _ in ignored],
        "warnings": warnings,
    }

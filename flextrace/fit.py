# SPDX-License-Identifier: Apache-2.0
"""``flextrace fit``: anybody's table of measurements becomes a profile that can be predicted from."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from characterize.errors import FlextraceError
from characterize.trace_files.new_file import check_new_file
from characterize.trace_files.provenance import command_words, created_now, provenance_of
from characterize.units import parse_positive, parse_seed
from flextrace.options.column_names import parse_columns
from flextrace.output.talk import say

if TYPE_CHECKING:
    from selfscale.predicting.cross_validation import Score
    from selfscale.profile import Profile
    from selfscale.profiles.table import Table

BAD_SHOWN = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the verb."""
    parser.add_argument(
        "table",
        type=Path,
        metavar="TABLE.csv",
        help="measurements: any of unique_bytes, seq_frac, read_frac, size_mean, process_num, with a unit where it is "
        "not bytes (unique_bytes_mib), a throughput (throughput_mb_per_s), and other parameters, one workload a line",
    )
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="PROFILE.json", help="write the profile here"
    )
    parser.add_argument("--cross-validate", action="store_true", help="print the errors of every model")
    parser.add_argument(
        "--columns",
        type=parse_columns,
        default={},
        metavar="NAME=COLUMN,...",
        help="what columns are that have other names, e.g. size_mean_kib=bs,throughput_mib_per_s=bw",
    )
    parser.add_argument(
        "--leave-out", metavar="COLUMN,...", default="", help="columns that are no parameters, such as a latency"
    )
    parser.add_argument(
        "--skip-bad",
        action="store_true",
        help="leave lines out that cannot be used, and count them; the exit code is then 3",
    )
    parser.add_argument(
        "--cost", type=parse_positive, metavar="N", help="what the machine costs, in any currency, for 'rank --by cost'"
    )
    parser.add_argument("--seed", type=parse_seed, default=0, metavar="N", help="of the cross-validation (default: 0)")
    parser.add_argument("--force", action="store_true", help="overwrite the profile")


def run(arguments: argparse.Namespace) -> int:
    """Fit, write, print what is in it; 3 if lines were left out."""
    check_new_file(arguments.output, force=arguments.force, inputs=[arguments.table])
    if len(set(arguments.columns.values())) < len(arguments.columns):
        raise FlextraceError("--columns: a column stands there twice: give each of them one name", 2)
    from selfscale.predict import record_scores  # noqa: PLC0415 (numpy only after the cheap refusals)
    from selfscale.profiles.table import read_table  # noqa: PLC0415
    from selfscale.profiles.table_profile import profile_of  # noqa: PLC0415

    table = read_table(
        arguments.table,
        arguments.columns,
        [name.strip() for name in arguments.leave_out.split(",") if name.strip()],
        skip_bad=arguments.skip_bad,
    )
    profile = profile_of(table)
    origin = provenance_of(arguments.table)
    profile.table["input"] = origin["input"]
    profile.settings = {} if arguments.cost is None else {"cost": arguments.cost}
    profile.tool_version = origin["tool_version"]
    profile.command = command_words()
    profile.created = created_now()
    profile.seed = arguments.seed
    record_scores(profile)
    if profile.models["best"] is None:
        raise FlextraceError(f"no model fits {arguments.table}: {profile.models['scores'][0]['reason']}")
    profile.save(arguments.output)
    print("\n".join(_lines(table, profile, every=arguments.cross_validate)))
    for line in table.bad[:BAD_SHOWN]:
        say("fit", f"left out: {line}")
    if len(table.bad) > BAD_SHOWN:
        say("fit", f"left out: {len(table.bad) - BAD_SHOWN} more")
    quoted = shlex.quote(str(arguments.output))
    say("fit", f"next: flextrace predict {quoted} {_example(profile)}")
    return 3 if table.bad else 0


def _lines(table: Table, profile: Profile, *, every: bool) -> list[str]:
    from selfscale.predict import scores_of  # noqa: PLC0415

    left_out = f", lines left out: {len(table.bad)}" if table.bad else ""
    lines = [f"{table.rows} measurements of {len(profile.measured)} workloads{left_out}", *table.said]
    for index, name in enumerate(table.names):
        values = table.values[:, index]
        lines.append(f"  {name:24}{values.min():>12.6g} to {values.max():.6g}")
    lines.append(f"  {'throughput':24}{table.throughput.min() / 1e6:>12.6g} to {table.throughput.max() / 1e6:.6g} MB/s")
    scores = scores_of(profile)
    if every:
        return lines + _scores_lines(scores, profile.models["best"])
    best = next(score for score in scores if score.model == profile.models["best"])
    return [
        *lines,
        f"model {best.model}: median error {best.errors['median']:.1%} on workloads that it had not learned",
    ]


def _scores_lines(scores: list[Score], best: str) -> list[str]:
    """A table of the errors of every model on workloads that it had not learned from."""
    names = ("median", "mean", "p75", "p90", "max")
    lines = ["cross-validated errors:", f"  {'model':16}" + "".join(f"{name:>9}" for name in names) + f"{'tested':>9}"]
    for score in scores:
        if not score.usable:
            lines.append(f"  {score.model:16} not fitted: {score.reason}")
            continue
        mark = " (used)" if score.model == best else ""
        cells = "".join(f"{score.errors[name]:>9.1%}" for name in names)
        lines.append(f"  {score.model + mark:16}{cells}{score.count:>9}")
    return lines


def _example(profile: Profile) -> str:
    """Options that name every parameter of the table."""
    from characterize.workload import FIELD_OF  # noqa: PLC0415

    options = [f"--{FIELD_OF[name].replace('_', '-')} ..." for name in profile.table["parameters"]]
    return " ".join([*options, *(f"--set {shlex.quote(name)}=..." for name in profile.table["extra"])])

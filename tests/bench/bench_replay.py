# SPDX-License-Identifier: Apache-2.0
"""The replay engine beside its targets and beside fio on the same lists of requests: ``make bench-replay``."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.bench.findings import Finding, print_findings
from tests.bench.replay_applications import measure_applications
from tests.bench.replay_lateness import measure_drift, measure_lateness
from tests.bench.replay_throughput import measure_null, measure_throughput
from tests.bench.scratch import work_directory


@dataclass(frozen=True)
class Part:
    """A part with its name on the command line, and how often and long its runs are unless told otherwise."""

    measure: Callable[[Path, int, float], tuple[list[Finding], dict[str, str]]]
    rounds: int
    seconds: float


PARTS = {
    "lateness": Part(measure_lateness, 1, 60),
    "drift": Part(measure_drift, 1, 600),
    "throughput": Part(measure_throughput, 4, 2),
    "null": Part(measure_null, 5, 2),
    "applications": Part(measure_applications, 3, 3),
}


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(PARTS), help="which, separated by commas (default: %(default)s)")
    parser.add_argument("--rounds", type=int, help="of each part (default: the part's own)")
    parser.add_argument("--seconds", type=float, help="of each run (default: the part's own)")
    parser.add_argument("--directory", type=Path, help="where files are read and written (default: a temporary one)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the findings to FILE")
    arguments = parser.parse_args()
    arguments.only = arguments.only.split(",")
    if unknown := set(arguments.only) - set(PARTS):
        parser.error(f"unknown parts {', '.join(sorted(unknown))}: choose from {', '.join(PARTS)}")
    if arguments.rounds is not None and arguments.rounds < 1:
        parser.error("--rounds is at least 1")
    return arguments


def main() -> None:
    """Measure, print, and write JSON where it is wanted."""
    arguments = parse_arguments()
    findings: list[Finding] = []
    skipped: dict[str, str] = {}
    with work_directory(arguments.directory) as work:
        work.chmod(0o711)  # the server of PostgreSQL runs as another user
        for part in (PARTS[name] for name in arguments.only):
            found, missing = part.measure(work, arguments.rounds or part.rounds, arguments.seconds or part.seconds)
            findings += found
            skipped |= missing
    print_findings(findings, skipped)
    if arguments.json:
        document = [asdict(finding) | {"met": finding.met} for finding in findings]
        arguments.json.write_text(
            json.dumps({"schema": "flextrace-bench-replay 2", "findings": document, "skipped": skipped}, indent=1)
            + "\n"
        )


if __name__ == "__main__":
    main()

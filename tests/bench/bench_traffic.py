# SPDX-License-Identifier: Apache-2.0
"""How well a simulation of the page cache tells what storage does for a workload: ``make bench-traffic``.

Of every machine that ``make bench-predict`` measured: requests and bytes that storage read and wrote, as the simulation
has them (`selfscale.simulation.traffic`, of which but one number is taken from the points: how many requests storage
takes at once) and as the formula of `learned` has them, with its constants fitted to the same points.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from selfscale.measure import Point
from selfscale.models.learned import service_times_of
from selfscale.models.measured import columns, measured
from selfscale.models.service_time import demand_at
from selfscale.models.traffic import TrafficModel
from selfscale.models.traffic_time import simulated
from selfscale.profiles.learned_points import learned_points
from selfscale.simulation.traffic import PAGE_BYTES
from tests.bench.lab_measurements import grown_profile

STAGES = ("random 0", "random 1")
NOTHING = 0.02
"""Bytes over those moved, and requests of storage over those made, that do not count."""
SHARE_MIN = 0.05
"""Of the requests in a direction: with fewer nothing is known of it."""


def main() -> int:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--from", dest="source", type=Path, default=Path("build/bench-predict.json"), metavar="FILE.json"
    )
    source = parser.parse_args().source
    if not source.exists():
        sys.exit(f"there is no {source}: let make bench-predict measure, or name its --output with --from")
    tables = [
        errors_of(name, record)
        for name, record in json.loads(source.read_text())["machines"].items()
        if "more" in record
    ]
    print(pd.concat(tables).to_string(index=False, float_format=lambda value: f"{value:.3g}"))
    return 0


def errors_of(name: str, record: dict) -> pd.DataFrame:
    """Median and 90th percentile of the error of what storage did for the points of a machine."""
    profile = grown_profile(record, sys.maxsize)
    points = profile.measured + [Point.from_document(point) for stage in STAGES for point in record.get(stage, [])]
    # Of requests of less than a page several may need one: the simulation has none of them.
    points = [
        point
        for point in points
        if point.device_reads is not None
        and point.throughput_bytes_per_s > 0
        and point.workload.size_mean >= PAGE_BYTES
    ]
    model = TrafficModel(profile.cache_environment).fit(learned_points(profile), profile.regions)
    table = columns([point.workload for point in points])
    traffic = simulated(table, model.formula.limits)
    read, write = table.read_frac, 1 - table.read_frac
    formula = service_times_of(measured(points), profile.regions)
    demand = demand_at(formula.constants, table, formula.border_bytes)
    moved, written, reads, writes = (
        np.array([getattr(point, field) for point in points], float)
        for field in ("device_frac", "device_write_frac", "device_reads", "device_writes")
    )
    rows = [
        ("bytes read", read, moved - written, traffic.read_frac + traffic.ahead_frac, demand.read_frac),
        ("requests read", read, reads, traffic.reads + traffic.reads_ahead, None),
        ("bytes written", write, written, traffic.written_frac, demand.write_frac),
        ("requests written", write, writes, traffic.writes, None),
    ]
    return pd.DataFrame(
        [
            {"machine": name, "queue": model.formula.limits.queue or "any", "what": what}
            | figures("simulated", share, real, share * told)
            | (figures("formula", share, real, fitted) if fitted is not None else {})
            for what, share, real, told, fitted in rows
        ]
    )


def figures(what: str, share: np.ndarray, real: np.ndarray, told: np.ndarray) -> dict[str, float]:
    """Of the points in which storage has a part."""
    counts = (share >= SHARE_MIN) & ((real > NOTHING) | (told > NOTHING))
    error = np.abs(np.log((told[counts] + NOTHING) / (real[counts] + NOTHING)))
    median, high = np.expm1(np.quantile(error, [0.5, 0.9]))
    return {"points": int(counts.sum()), f"{what}, median %": 100 * median, f"{what}, 90th %": 100 * high}


if __name__ == "__main__":
    sys.exit(main())

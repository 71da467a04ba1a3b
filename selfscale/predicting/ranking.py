# SPDX-License-Identifier: Apache-2.0
"""Turns what several machines are predicted to do into an order: which one suits this application.

By throughput, by elapsed time, or by throughput per cost: Chen and Patterson (1994, section 7) name that use, since the
price of a configuration is known and its performance predicted. `WORKLOADS` are those that the thesis compares machines
with (table 5.2).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from characterize.errors import FlextraceError
from characterize.shape import positive
from characterize.workload import Workload
from selfscale.predict import BEST, Predictor, predictor_of
from selfscale.predicting.application import Application
from selfscale.predicting.estimates import Estimate, Relative, estimates, relative_of, with_basis, workload_estimates
from selfscale.predicting.no_simulation import no_simulation
from selfscale.predicting.relative import Estimated, Ratio, ratio_of
from selfscale.profile import Profile
from selfscale.profiles.table_profile import known_settings

KIB, MIB = 1024.0, float(1 << 20)
WORKLOADS = {
    "table5.2": {
        "workstation": Workload(1 * MIB, 0.8, 0.8, 4 * KIB, 1.0),
        "large_utility": Workload(10 * MIB, 0.9, 0.6, 8 * KIB, 1.0),
        "scientific_write": Workload(250 * MIB, 0.5, 0.2, 100 * KIB, 1.0),
        "scientific_read": Workload(250 * MIB, 0.5, 0.8, 100 * KIB, 1.0),
        "database": Workload(500 * MIB, 0.1, 0.2, 4 * KIB, 2.0),
    }
}
"""Sets of workloads by name; the thesis's KB and MB are taken as binary."""


@dataclass(frozen=True)
class Machine:
    """A profile that is ranked.

    Attributes
    ----------
    name : str
        Of its file, without the suffix.
    cost : float
        NaN where the profile carries none.
    """

    name: str
    path: Path
    cost: float
    predictor: Predictor


@dataclass(frozen=True)
class Entry:
    """One machine with one workload.

    Attributes
    ----------
    machine : Machine
    estimate : Estimate
    relative : Relative or None
        From the application's run on a measured machine; then it takes the estimate's place. None of a simulation,
        which is nearer by itself (docs/decisions/0026).
    """

    machine: Machine
    estimate: Estimate
    relative: Relative | None = None

    @property
    def throughput(self) -> Estimated:
        """Bytes per s: in I/O where the trace has times, else of the five parameters."""
        if self.relative is not None:
            return self.relative.in_io
        return self.estimate.in_io or self.estimate.prediction.estimated

    @property
    def elapsed_s(self) -> Estimated | None:
        """Of the application; None where the trace has no times."""
        return self.relative.elapsed_s if self.relative is not None else self.estimate.elapsed_s

    @property
    def per_cost(self) -> float:
        """Bytes per s for one unit of cost; NaN without cost."""
        return self.throughput.value / self.machine.cost

    def merit(self, by: str) -> Estimated:
        """What machines are ordered by, more being better: throughput, that for a unit of cost, runs per s."""
        if by == "elapsed" and (elapsed_s := self.elapsed_s) is not None:
            return Estimated(1 / elapsed_s.value, 1 / elapsed_s.high, 1 / elapsed_s.low)
        return self.throughput.times(1 / self.machine.cost) if by == "cost" else self.throughput


def machines_of(
    profiles: Sequence[tuple[Path, Profile]], model: str = BEST, settings: Mapping[str, float] | None = None
) -> list[Machine]:
    """Profiles, of machines or of tables, with a fitted model each.

    Parameters
    ----------
    profiles : sequence of (Path, Profile)
        With the files that they were read from.
    model : str
    settings : mapping, optional
        Values of parameters beyond the five, for those profiles that have them.

    Raises
    ------
    FlextraceError
        A profile cannot be used, or has a cost that is no number above 0; or no profile has a parameter.
    """
    names = [path.stem for path, _ in profiles]
    chosen = [known_settings(profile, settings or {}) for _, profile in profiles]
    for name in settings or {}:
        if not any(name in of_profile for of_profile in chosen):
            raise FlextraceError(f"--set {name}: no profile has such a parameter beyond the five", 2)
    machines = []
    for (path, profile), of_profile in zip(profiles, chosen, strict=True):
        cost = profile.settings.get("cost", profile.environment.get("cost"))
        if cost is not None and not positive(cost):
            raise FlextraceError(f"profile {path} has cost {cost!r}: give a number above 0")
        machines.append(
            Machine(
                name=path.stem if names.count(path.stem) == 1 else str(path),
                path=path,
                cost=math.nan if cost is None else float(cost),
                predictor=predictor_of(path, profile, model, of_profile),
            )
        )
    return machines


def rank(
    machines: Sequence[Machine], application: Application, by: str = "throughput", measured_on: Predictor | None = None
) -> list[list[Entry]]:
    """Order machines, for every workload of an application.

    Parameters
    ----------
    machines : sequence of Machine
    application : Application
    by : {"throughput", "elapsed", "cost"}
        Cost: bytes per s for one unit of it, those without cost last.
    measured_on : Predictor, optional
        Of the machine that the application was recorded on: then all are ranked by relative predictions, but for what
        is simulated.

    Returns
    -------
    list of list of Entry
        A list for every workload, the best machine first.

    Raises
    ------
    FlextraceError
        No machine has a cost, or the trace no times, and that was asked for.
    """
    if by == "cost" and all(math.isnan(machine.cost) for machine in machines):
        raise FlextraceError(
            "no profile carries a cost: make them with 'flextrace scale --cost N' or 'fit --cost N'", 2
        )
    if by == "elapsed" and application.times is None and application.operations is None:
        raise FlextraceError(
            f"there is no elapsed time to rank by, since {application.why_no_times}: rank by throughput", 2
        )
    there = workload_estimates(measured_on, application) if measured_on is not None else None
    columns = [(machine, estimates(machine.predictor, application, measured_on)) for machine in machines]
    tables = []
    for first in columns[0][1]:
        row = [(machine, with_basis(here, first.basis)) for machine, here in columns]
        relative = there if first.simulated is None else None
        origin = with_basis(relative, first.basis) if relative is not None else None
        # Machines are compared by what all of them have.
        if any(estimate is None for _, estimate in row) or (relative is not None and origin is None):
            continue
        if by == "elapsed" and first.elapsed_s is None:
            continue
        entries = [
            Entry(machine, estimate, relative_of(estimate, origin) if origin else None)
            for machine, estimate in row
            if estimate is not None
        ]
        tables.append(sorted(entries, key=lambda entry: _key(entry, by)))
    if not tables and by == "elapsed":
        raise FlextraceError(
            f"there is no elapsed time to rank by, since {application.why_no_times}, and {unsimulated(machines)}: rank "
            "by throughput",
            2,
        )
    return tables


def unsimulated(machines: Iterable[Machine]) -> str:
    """From which profiles nothing is simulated, so that no simulations are compared; empty where all can be."""
    reasons = [f"{machine.path} {why.reason}" for machine in machines if (why := no_simulation(machine.predictor))]
    return f"not all of the machines can be simulated ({'; '.join(reasons)})" if reasons else ""


def _key(entry: Entry, by: str) -> tuple[float, float]:
    if by == "elapsed" and entry.elapsed_s is not None:
        return entry.elapsed_s.value, -entry.throughput.value
    if by == "cost":
        return -entry.per_cost if math.isfinite(entry.per_cost) else math.inf, -entry.throughput.value
    return -entry.throughput.value, 0.0


def ratio_to(entry: Entry, reference: Entry, by: str = "throughput") -> Ratio:
    """How many times as good as another one a machine is by that: its throughput over the other's (thesis 5.5)."""
    ratio = ratio_of(entry.merit(by), reference.merit(by))
    return replace(ratio, other_bytes_per_s=reference.throughput.value)


def told_apart(ratio: Ratio) -> bool:
    """Whether the 90 % interval of a ratio leaves out 1."""
    return not ratio.interval_low <= 1 <= ratio.interval_high

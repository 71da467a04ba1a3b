# SPDX-License-Identifier: Apache-2.0
"""Turns a recording and a measured machine into one table: application, its replay, Willy, the prediction (thesis 3.6).

Table 3.2 of the thesis compares an application with Willy, figure 5.2 with the prediction. Here every row runs in a
memory group of the same size and says how its page cache was at the start; a row that differs from the application
there is marked, since it compares different things.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from characterize.characterization import characterize as characterization_of
from characterize.errors import FlextraceError
from characterize.trace import Trace
from characterize.trace_files.provenance import command_words, created_now, sha256_of, tool_version
from characterize.workload import Workload
from selfscale.comparing.comparison import Comparison, Row, comparison_document, mark_differences
from selfscale.comparing.comparison_predictions import equivalent_unique_bytes, prediction_rows
from selfscale.comparing.comparison_runs import Setting, application_row, measured_rows
from selfscale.measuring.environment import same_limit
from selfscale.profile import Profile

MUST_HOLD = ("application", "replay")
"""Rows that can always have the application's conditions. The thesis's Willy and its prediction start warm by
definition, and the extended Willy gets as cold as its own requests leave it: those mark only themselves."""


def compare(
    trace: Trace,
    profile: Profile,
    directory: Path,
    *,
    memory_bytes: int | None = None,
    repeat: int = 3,
    seed: int = 0,
    timing: str = "think",
    max_seconds: float = 30.0,
    on_step: Callable[[str], None] | None = None,
) -> Comparison:
    """Compare an application with its replay, with Willy and with the prediction.

    Parameters
    ----------
    trace : Trace
        A recording with measured times, opened from a file.
    profile : Profile
        Of the machine that this runs on.
    directory : Path
        Where replay and Willy work; a subdirectory is made and removed.
    memory_bytes : int or None
        Limit of the memory group; None takes the profile's.
    repeat : int
        Runs per measured row; the table has the median and the range.
    seed : int
    timing : {"think", "asap"}
        Whether the replay repeats the application's own computing between requests.
    max_seconds : float
        Longest run of Willy; one that is not steady by then says so.
    on_step : callable
        Told, in a few words, what is being done.

    Returns
    -------
    Comparison
        Rows application, replay, willy, willy_extended, prediction, prediction_equivalent, prediction_extended,
        prediction_simulated; those of Willy where it can have the application's parameters, the last three where the
        trace and the profile have what they need.

    Raises
    ------
    FlextraceError
        The trace was not measured or has no requests; a run failed.
    """
    if trace.path is None or not trace.measured:
        raise FlextraceError(
            "compare needs a recording, whose times are measurements: replay the trace under 'flextrace record' first",
            2,
        )
    say = on_step or (lambda text: None)
    trace_sha256 = sha256_of(trace.path)  # now: nothing is to come between the runs and their result
    say("characterizing the trace")
    layer = characterization_of(trace).as_document()["layers"]["vfs"]
    workload = Workload.from_document(layer["parameters"])
    if not workload.unique_bytes > 0:
        raise FlextraceError(f"{trace.path} has no request at the application's layer: nothing to compare", 2)
    profile_limit = profile.environment.get("memory_limit_bytes")
    setting = Setting(
        trace=trace,
        layer=layer,
        workload=workload,
        profile=profile,
        directory=Path(directory),
        memory_bytes=profile_limit if memory_bytes is None else memory_bytes,
        repeat=repeat,
        seed=seed,
        timing=timing,
        max_seconds=max_seconds,
    )
    predictions = prediction_rows(setting)  # first: a profile that is no use fails before anything runs
    rows = [
        application_row(setting),
        *measured_rows(setting, say),
        *predictions,
    ]
    mark_differences(rows)
    limits = conditions(rows[0], setting, profile_limit)
    document = comparison_document(
        rows,
        MUST_HOLD,
        [] if limits["equal_memory"] else ["the memory limits of application, runs and profile are not equal"],
        tool_version=tool_version(),
        command=command_words(),
        created=created_now(),
        seed=seed,
        repeat=repeat,
        trace=str(trace.path),
        trace_sha256=trace_sha256,
        trace_command=trace.header.metadata.get("command"),
        trace_warnings=trace.warnings,
        profile=None if profile.path is None else str(profile.path),
        profile_sha256=None if profile.path is None else sha256_of(profile.path),
        directory=str(directory),
        conditions=limits,
        equivalentUniqueBytes=equivalent_unique_bytes(layer),
    )
    return Comparison(document)


def conditions(application: Row, setting: Setting, profile_limit_bytes: int | None) -> dict[str, object]:
    """Memory limits of the three sides, and the application's page cache."""
    limits = [application.memory_limit_bytes, setting.memory_bytes, profile_limit_bytes]
    return {
        "application_memory_limit_bytes": limits[0],
        "run_memory_limit_bytes": limits[1],
        "profile_memory_limit_bytes": limits[2],
        "equal_memory": all(same_limit(limit, limits[0]) for limit in limits),
        "application_coldFrac": setting.cold_frac,
        "application_syncFrac": setting.sync_frac,
    }

# SPDX-License-Identifier: Apache-2.0
"""Turns estimates into the lines that ``flextrace predict`` prints."""

from __future__ import annotations

import math
import textwrap
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from characterize.units import format_bytes, format_duration, format_megabytes

if TYPE_CHECKING:
    from characterize.workload import Workload
    from selfscale.predicting.application import Application
    from selfscale.predicting.cross_validation import Score
    from selfscale.predicting.estimates import Estimate, Relative
    from selfscale.predicting.relative import Estimated, Ratio
    from selfscale.profile import Profile
    from selfscale.profiles.repeatability import Repeatability

WIDTH = 98


def estimate_lines(profile: Profile, estimate: Estimate) -> list[str]:
    """Of one workload: its parameters, the throughput of the five, how that was found."""
    prediction = estimate.prediction
    region = profile.regions[prediction.region] if profile.regions else None
    where = (
        f"region {prediction.region + 1} of {len(profile.regions)} "
        f"({format_bytes(region.low_bytes)} to {format_bytes(region.high_bytes)})"
        if region
        else "no regions"
    )
    lines = [
        f"{estimate.basis}:",
        *wrapped(workload_text(estimate.workload)),
        f"  throughput {rates(prediction.estimated)}",
        f"  model {prediction.model}, {where}, {len(prediction.points_used)} points",
    ]
    for part in prediction.extended_note.split(";"):
        lines += wrapped(part.strip())
    if not prediction.inside_range:
        lines.append(f"  OUTSIDE the measured range in {', '.join(prediction.outside)}")
    return lines + [f"  {note}" for note in prediction.notes]


def workload_text(workload: Workload) -> str:
    """The parameters in one line; those that were not given are left out."""
    parts = {
        f"uniqueBytes {format_bytes(workload.unique_bytes)}": workload.unique_bytes,
        f"seqFrac {workload.seq_frac:.3g}": workload.seq_frac,
        f"readFrac {workload.read_frac:.3g}": workload.read_frac,
        f"sizeMean {format_bytes(workload.size_mean)}": workload.size_mean,
        f"processNum {workload.process_num:g}": workload.process_num,
    }
    return ", ".join(text for text, value in parts.items() if math.isfinite(value)) or "at the medians of the table"


def application_lines(application: Application, estimate: Estimate) -> list[str]:
    """Throughput in I/O and elapsed time of the application; none where the trace does not tell these."""
    if estimate.in_io is None or estimate.elapsed_s is None:
        return []
    simulated = estimate.simulated is not None
    elapsed = wrapped(f"elapsed {durations(estimate.elapsed_s, of_its_own=simulated)}")
    if simulated:
        return elapsed
    what = "I/O" if estimate.times is application.times else "I/O and syncs"
    from_device = f", {estimate.device_share:.0%} of the bytes from the device" if estimate.device_share else ""
    return [*wrapped(f"{what} with {estimate.in_flight:.3g} in flight{from_device}: {rates(estimate.in_io)}"), *elapsed]


def recorded_lines(application: Application, estimate: Estimate | None = None, unsimulated: str = "") -> list[str]:
    """Where the time of the recording went, as it compares with an estimate of a profile."""
    times = application.times if estimate is None else estimate.times
    if times is None:
        return textwrap.wrap(
            _no_times(application, unsimulated),
            WIDTH,
            subsequent_indent="  ",
            break_on_hyphens=False,  # names of files are in it
            break_long_words=False,
        )
    what, syncs = "I/O", f"; {format_duration(times.sync_s)} with a sync in flight"
    if times is not application.times:
        what, syncs = "I/O and syncs", ""
    text = (
        f"recorded: {format_megabytes(times.throughput_bytes_per_s)} MB/s in {what}, "
        f"elapsed {format_duration(times.elapsed_s)} = "
        f"{format_duration(times.outside_s)} not in {what} (taken as it is{syncs}) + "
        f"{format_duration(times.waiting_s)} waiting for {what}"
    )
    return textwrap.wrap(text, WIDTH, subsequent_indent="  ")


def _no_times(application: Application, unsimulated: str) -> str:
    """Why there is no split of the recorded time, and whether there is an elapsed time all the same.

    Parameters
    ----------
    unsimulated : str
        Why operations are simulated on no machine; empty where they are.
    """
    why = application.why_no_times
    if application.operations is None:
        return f"no elapsed time: {why}"
    if unsimulated:
        return f"no elapsed time: {why}, and {unsimulated}"
    return f"no recorded times: {why}, and only its simulation gives it an elapsed time"


def relative_lines(name: str, estimate: Estimate, relative: Relative) -> list[str]:
    """What follows from how the application ran on another machine."""
    elapsed = durations(relative.elapsed_s, of_its_own=estimate.simulated is not None)
    outside = f"; OUTSIDE the measured range of {name} in {', '.join(relative.outside)}" if relative.outside else ""
    return [
        *wrapped(
            f"relative to its run on {name} (the prediction there is {relative.off:+.0%} off the recorded): "
            f"I/O {rates(relative.in_io)}{outside}"
        ),
        *wrapped(f"elapsed, relative: {elapsed}"),
    ]


def ratio_lines(name: str, ratio: Ratio) -> list[str]:
    """How many times as fast as another machine."""
    outside = f"; OUTSIDE the other's measured range in {', '.join(ratio.outside)}" if ratio.outside else ""
    return [
        f"  {ratio.ratio:.3g} times the throughput of {name}, 90 % interval {ratio.interval_low:.3g} to "
        f"{ratio.interval_high:.3g}{outside}"
    ]


def models_lines(scores: list[Score], used: str, repeated: Repeatability | None) -> list[str]:
    """All models' errors and, beside them, that of measuring again (thesis, table 5.1); a table has none, since nothing
    was measured of it."""
    parts = []
    for score in scores:
        if score.usable:
            mark = " (used)" if score.model == used else ""
            parts.append(f"{score.model}{mark} {score.errors['median']:.0%} / {score.errors['p90']:.0%}")
    left_out = [f"{score.model} (not fitted)" for score in scores if not score.usable]
    texts = ["cross-validated error, median / 90th percentile: " + ", ".join(parts + left_out)]
    if repeated:
        texts.append(f"repeatability error, the same: {repeatability_text(repeated)}")
    return [line for text in texts for line in textwrap.wrap(text, WIDTH, subsequent_indent="  ")]


def repeatability_text(repeated: Repeatability) -> str:
    """Median and 90th percentile of how far equal measurements lay apart."""
    if repeated.median is None:
        return "not known, nothing was measured twice"
    of = f"{repeated.repeated} workload{'s' * (repeated.repeated != 1)}"
    return f"{repeated.median:.0%} / {repeated.p90:.0%}, of {of} measured again"


def treatment_lines(verb: str, treated: list[tuple[str, float, str]]) -> list[str]:
    """What became of extended parameters."""
    return [
        line
        for name, value, text in treated
        for line in textwrap.wrap(f"{verb}: {name} {_known(value)} ({text})", WIDTH, subsequent_indent="  ")
    ]


def _known(value: float) -> str:
    return "unknown" if math.isnan(value) else f"{value:.3g}"


def rates(estimated: Estimated) -> str:
    """A throughput and its interval."""
    return (
        f"{format_megabytes(estimated.value)} MB/s, 90 % interval {format_megabytes(estimated.low)} to "
        f"{format_megabytes(estimated.high)} MB/s"
    )


def durations(estimated: Estimated, *, of_its_own: bool) -> str:
    """Seconds, and their interval, or where they have none of their own what that of the throughput makes of them."""
    low, high = format_duration(estimated.low), format_duration(estimated.high)
    interval = "90 % interval" if of_its_own else "by that interval"
    return f"{format_duration(estimated.value)}, {interval} {low} to {high}"


def wrapped(text: str) -> list[str]:
    """Indented lines."""
    return textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="    ")


def document_of(estimate: Estimate) -> dict[str, Any]:
    """What a document says of one workload beside its prediction."""
    names = ("in_io", "in_flight", "device_share", "elapsed_s", "simulated")
    if estimate.in_io is None:
        return dict.fromkeys(names)
    return {name: value for name, value in asdict(estimate).items() if name in names}

# SPDX-License-Identifier: Apache-2.0
"""Turns an application's parameters and a profile into the predicted rows of a comparison (thesis 5.2, figure 5.2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from characterize.document import plain
from characterize.errors import FlextraceError
from characterize.workload import Workload
from selfscale.comparing.comparison import Row, Sample, little_response_time_ns, sample_of
from selfscale.comparing.comparison_runs import Setting
from selfscale.measuring.environment import changed, host
from selfscale.predict import Predictor
from selfscale.predicting.estimates import simulated_in_io, simulation_of
from selfscale.predicting.no_simulation import no_simulation
from selfscale.predicting.uncached import device_share, knows_device, with_device_reads
from selfscale.simulation.operations import operations_of
from selfscale.simulation.simulate import Simulated


def equivalent_unique_bytes(layer: dict[str, Any]) -> float | None:
    """2 x mean LRU depth of a characterized layer (thesis 3.4.1.1), bytes; None where nothing is reused."""
    return (layer.get("locality") or {}).get("equivalentUniqueBytes")


def _prediction(
    setting: Setting, predictor: Predictor, workload: Workload, *, name: str, label: str, made_by: str
) -> Row:
    prediction = predictor.predict(workload)
    access = setting.profile.access
    row = Row(
        name=name,
        label=label,
        made_by=f"{made_by}, model {prediction.model}",
        workload=workload,
        samples=[_predicted_sample(workload, prediction.throughput_bytes_per_s)],
        memory_limit_bytes=setting.profile.environment.get("memory_limit_bytes"),
        cold_frac=0.0,
        page_cache="warm start (the profile's points)" if access.cached else "none (the profile's points)",
        details={
            "interval_bytes_per_s": plain([prediction.interval_low, prediction.interval_high]),
            "model": prediction.model,
            "region": prediction.region,
            "inside_range": prediction.inside_range,
            "cross_validated_median_errors": {
                score["model"]: score["errors"]["median"]
                for score in setting.profile.models.get("scores", [])
                if score["errors"]
            },
        },
    )
    if not prediction.inside_range:
        outside = ", ".join(prediction.outside) or "a parameter"
        row.reasons.append(f"{outside} outside the range that the profile was measured in")
    errors = row.details["cross_validated_median_errors"]
    if errors:
        each = ", ".join(f"{model} {error:.0%}" for model, error in errors.items())
        row.notes.append(f"median errors of the profile's models on workloads left out: {each}")
    if prediction.extended_note:
        row.notes.append(prediction.extended_note)
    if access.sync_frac:
        row.reasons.append(
            f"the profile was measured with {access.syncs}, whose time is in its throughput, and not in that of others"
        )
    elif setting.sync_frac:
        row.notes.append(f"the profile has no syncs, the application {setting.sync_frac:.2g} per write")
    if not access.cached:
        row.reasons.append("the profile was measured with O_DIRECT, all other rows go by the page cache")
    elif setting.cold_frac and not knows_device(predictor):
        row.notes.append("the profile tells no region beyond the cache: cold reads are predicted as cached ones")
    if setting.profile.lacks:
        row.reasons.append(f"the profile {setting.profile.lacks}")
    return row


def _predicted_sample(workload: Workload, throughput_bytes_per_s: float | None) -> Sample:
    return {
        "throughput_in_io_bytes_per_s": throughput_bytes_per_s,
        "throughput_bytes_per_s": None,
        "read_mean_ns": None,
        "write_mean_ns": None,
        "mean_ns": None
        if throughput_bytes_per_s is None
        else little_response_time_ns(workload, throughput_bytes_per_s),
        "sync_per_request_ns": None,
    }


def prediction_rows(setting: Setting) -> list[Row]:
    """What the profile says of the five parameters, of equivalent uniqueBytes, with cold reads, and by simulation."""
    predictor = Predictor(setting.profile)
    made_by = "the five parameters"
    rows = [_prediction(setting, predictor, setting.workload, name="prediction", label="prediction", made_by=made_by)]
    equivalent = equivalent_unique_bytes(setting.layer)
    if equivalent:
        row = _prediction(
            setting,
            predictor,
            setting.workload.replace(unique_bytes=equivalent),
            name="prediction_equivalent",
            label="prediction (equivalent)",
            made_by="as prediction, but uniqueBytes = 2 x mean LRU depth (thesis 3.4.1.1)",
        )
        rows.append(row)
    counts = setting.layer["counts"]
    read_share = counts["read_bytes"] / (counts["read_bytes"] + counts["written_bytes"])
    share = device_share(setting.layer.get("extended") or {}, read_share)
    if share and knows_device(predictor):
        rows.append(_prediction_extended(setting, predictor, rows[0], share))
    try:
        operations = operations_of(setting.trace)
        found = simulation_of(predictor, operations)
    except FlextraceError as error:
        rows[0].notes.append(f"the operations of the trace are not simulated: {error}")
    else:
        if nothing := no_simulation(predictor):
            told = f"the profile {nothing.reason}; {nothing.remedy}"
            rows[0].notes.append(f"the operations of the trace are not simulated: {told}")
        elif found is not None:
            rows.append(_prediction_simulated(setting, rows[0], found, operations.span_s))
    if elsewhere := _elsewhere(setting.profile.environment):
        for row in rows:
            row.reasons.append(elsewhere)
    return rows


def _elsewhere(environment: Mapping[str, Any]) -> str:
    """Why predictions are not of the machine that the other rows run on; empty where nothing says so."""
    here = host()
    found = [f"{name} was {environment[name]}, is {here[name]}" for name in changed(environment, here)]
    return f"the profile was measured on another machine: {'; '.join(found)}" if found else ""


def _prediction_extended(setting: Setting, predictor: Predictor, warm: Row, share: float) -> Row:
    """The prediction with this share of all bytes, cold or direct reads, from the region furthest beyond the cache."""
    prediction = predictor.predict(setting.workload)
    mixed = with_device_reads(predictor, setting.workload, prediction.estimated, share)
    return Row(
        name="prediction_extended",
        label="prediction (cold reads)",
        made_by=f"prediction with {share:.1%} of all bytes read from beyond the cache",
        workload=setting.workload,
        samples=[_predicted_sample(setting.workload, mixed.value)],
        memory_limit_bytes=warm.memory_limit_bytes,
        cold_frac=setting.cold_frac,
        page_cache="computed",
        reasons=list(warm.reasons),
        notes=list(warm.notes),
        details={
            "interval_bytes_per_s": plain([mixed.low, mixed.high]),
            "model": warm.details["model"],
        },
    )


def _prediction_simulated(setting: Setting, warm: Row, found: Simulated, span_s: float) -> Row:
    """The operations of the trace, run on a simulated machine, which starts with the recorded page cache."""
    counts = setting.layer["counts"]
    moved_bytes = counts["read_bytes"] + counts["written_bytes"]
    # Before the first operation and after the last one the application computes as it did.
    around_s = moved_bytes / setting.layer["throughput_bytes_per_s"] - span_s
    in_io = simulated_in_io(found)
    times = {
        kind: {"count": counts[f"{kind}s"], "mean_ns": plain(mean_ns)}
        for kind, mean_ns in (("read", found.read_mean_ns), ("write", found.write_mean_ns))
    }
    return Row(
        name="prediction_simulated",
        label="prediction (simulated)",
        made_by="the operations of the trace, run on a simulated machine with the profile's constants",
        workload=setting.workload,
        samples=[
            sample_of(
                {
                    "throughput_in_io_bytes_per_s": found.throughput_bytes_per_s,
                    "throughput_bytes_per_s": moved_bytes / (found.span_s + around_s),
                    "response_time": times,
                    "time_in_sync_s": found.sync_s,
                }
            )
        ],
        memory_limit_bytes=warm.memory_limit_bytes,
        cold_frac=setting.cold_frac,
        page_cache="simulated from the recorded one",
        details={"interval_bytes_per_s": plain([in_io.low, in_io.high]), "model": "simulation"},
    )

# SPDX-License-Identifier: Apache-2.0
"""Turns the document of a profile into an error where something in it is not what everybody takes for granted.

Profiles are copied, cut off and edited. What is wrong in one is told when it is read, by its place in it, and not by
whoever computes with it first.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping
from typing import Any

from characterize.shape import (
    Check,
    amount,
    count,
    failing,
    finite,
    flag,
    list_of,
    object_of,
    or_none,
    positive,
    share,
    text,
)
from characterize.workload import PARAMETERS
from selfscale.measuring.access import ENGINES
from selfscale.measuring.stop_rule import CONFIDENCE, RULES

OBJECTS = ("environment", "drift", "settings", "models", "knee", "table", "findings")
TOP: dict[str, Check] = {
    "boundaries_bytes": list_of(positive),
    "seed": count,
    "command": list_of(text),
    "created": text,
    "tool_version": text,
    "complete": flag,
    "ended_early": text,
}
WORKLOAD: dict[str, Check] = {
    "uniqueBytes": positive,
    "seqFrac": share,
    "readFrac": share,
    "sizeMean": positive,
    "processNum": positive,
}
POINT: dict[str, Check] = {
    "throughput_bytes_per_s": amount,
    "ci95_half_width_bytes_per_s": or_none(amount),
    "response_time": object_of(or_none(object_of(amount))),
    "steady": flag,
    "interval90_bytes_per_s": or_none(list_of(or_none(finite), 2)),
    "role": text,
    "region": or_none(count),
    "parameter": or_none(text),
    "repeat": count,
    "reason": text,
    **dict.fromkeys(("seconds", "passes", "elapsed_s", "cost_s", "resumed_s"), amount),
    **dict.fromkeys(("device_frac", "device_write_frac", "dirtied_frac"), or_none(amount)),
    **dict.fromkeys(("device_reads", "device_writes", "disturbed_bytes_per_s"), or_none(amount)),
}
ACCESS: dict[str, Check] = {
    "mode": lambda value: value in ("buffered", "direct", "device"),
    "device": or_none(text),
    "writes": flag,
    "engine": lambda value: value in ENGINES,
    "depth": or_none(lambda value: count(value) and value > 0),
    "sync_frac": share,
    "dsync": flag,
}
ENVIRONMENT: dict[str, Check] = {
    **dict.fromkeys(("read_ahead_bytes", "request_bytes", "cache_limit_bytes", "dirty_limit_bytes"), or_none(amount)),
    **dict.fromkeys(("cpus", "memory_bytes", "memory_limit_bytes"), or_none(amount)),
    **dict.fromkeys(("kernel", "filesystem", "directory", "device"), or_none(text)),
}
REFERENCE: dict[str, Check] = {
    "region": count,
    "throughput_bytes_per_s": list_of(amount),
    "spread": amount,
    "last_to_first": finite,
}
ERRORS = ("median", "p75", "p90", "max", "mean")
SCORE: dict[str, Check] = {
    "model": text,
    "reason": text,
    "count": count,
    "errors": object_of(amount),
    "mean_log": amount,
    "by_region": list_of(lambda part: isinstance(part, dict) and amount(part.get("median"))),
    "widening": object_of(object_of(amount)),
}
KNEE: dict[str, Check] = {
    "converged": flag,
    "rounds": count,
    "moving": list_of(text),
    "out_of_time": flag,
    "ranges": object_of(list_of(finite, 2)),
}
MACHINE: dict[str, Check] = {
    **dict.fromkeys(("cache_bytes", "span_bytes"), positive),
    **dict.fromkeys(("cpus", "block_bytes"), lambda value: count(value) and value > 0),
    **dict.fromkeys(("read_only", "stable_writes"), flag),
    "spent_s": amount,
}
TABLE: dict[str, Check] = {
    "parameters": lambda value: isinstance(value, list) and all(name in PARAMETERS for name in value),
    "extra": object_of(finite),
}


def check_shape(document: Mapping[str, Any]) -> None:
    """Look at all that is in a profile, but for what its schema does not name.

    Raises
    ------
    ValueError, TypeError, KeyError, OverflowError
        Something is missing, or is not what it should be.
    """
    for name in OBJECTS:
        if not isinstance(document.get(name, {}), dict):
            raise TypeError(f"{name} is no object")
    _check(document, TOP)
    table = document.get("table") or {}
    if table:
        _check(table, TABLE, "table", required=TABLE)
    for name in ("points", "storage"):
        for number, point in enumerate(_rows(document.get(name, []), name)):
            check_point(point, f"{name}[{number}]", table)
    for number, region in enumerate(_rows(document["regions"], "regions")):
        place = f"regions[{number}]"
        _check(region, {"low_bytes": amount, "high_bytes": positive}, place, required=("low_bytes", "high_bytes"))
        if region["low_bytes"] > region["high_bytes"]:
            raise ValueError(f"{place} ends at {region['high_bytes']!r}, before it begins")
        _check_workload(region["focal"], table, f"{place}.focal")
    _check_settings(document.get("settings", {}))
    _check(document.get("environment", {}), ENVIRONMENT, "environment")
    for number, entry in enumerate(_rows(document.get("drift", {}).get("reference_points", []), "drift")):
        _check(entry, REFERENCE, f"drift.reference_points[{number}]", required=REFERENCE)
    _check_models(document.get("models", {}))
    if knee := document.get("knee", {}):
        _check(knee, KNEE, "knee", required=[name for name in KNEE if name != "out_of_time"])


def check_point(point: Mapping[str, Any], place: str, table: Mapping[str, Any] | None = None) -> None:
    """Look at one point, which is not of a machine where there is a `table`; raises what `check_shape` does."""
    _check(point, {}, place, required=("workload",))
    _check_workload(point["workload"], table or {}, f"{place}.workload")
    _check(point, POINT, place, required=("throughput_bytes_per_s", "ci95_half_width_bytes_per_s"))


def check_machine(machine: Any, required: Iterable[str]) -> None:
    """Look at what a journal says of its machine (fields of `plan.Settings`); raises what `check_shape` does.

    There must not be more: what another version knew of it decided on the points.
    """
    if not isinstance(machine, dict):
        raise TypeError("machine is no object")
    _check(machine, MACHINE, "machine", required)
    if unknown := sorted(set(machine) - set(MACHINE)):
        raise ValueError(f"machine has {unknown[0]}, which is unknown")


def check_host(host: Any) -> None:
    """Look at what a journal says of where its points were measured; raises what `check_shape` does."""
    if not isinstance(host, dict):
        raise TypeError("host is no object")
    _check(host, ENVIRONMENT, "host")


def _rows(value: Any, name: str) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
        raise TypeError(f"{name} is no list of objects")
    return value


def _check(
    value: Mapping[str, Any], checks: Mapping[str, Check], place: str = "", required: Iterable[str] = ()
) -> None:
    """What is there has to be as it should, what is `required` has to be there."""
    of = f"{place} has " if place else ""
    for name in required:
        if name not in value:
            raise ValueError(f"{of}no {name}")
    if wrong := failing(value, checks):
        raise ValueError(f"{of}{wrong[0]} {reprlib.repr(value[wrong[0]])}")


def _check_workload(value: Any, table: Mapping[str, Any], place: str) -> None:
    """Of a machine all five are known, of a table those that it has, and others."""
    if not isinstance(value, dict):
        raise TypeError(f"{place} is no object")
    known = table["parameters"] if table else PARAMETERS
    checks = {name: check if name in known else or_none(check) for name, check in WORKLOAD.items()}
    extra = dict.fromkeys(table.get("extra", {}), finite)
    _check(value, checks | extra, place, required=[*PARAMETERS, *extra])


def _check_settings(settings: Mapping[str, Any]) -> None:
    access, target = settings.get("access", {}), settings.get("target", 1.0)
    if not isinstance(access, dict):
        raise TypeError(f"settings has access {access!r}")
    _check(access, ACCESS, "settings.access")
    if settings.get("stop_rule", CONFIDENCE) not in RULES or not positive(target):
        raise ValueError(f"settings stops at {settings.get('stop_rule')!r}, {target!r}")


def _check_models(models: Mapping[str, Any]) -> None:
    scores = _rows(models.get("scores", []), "models.scores")
    for number, score in enumerate(scores):
        place = f"models.scores[{number}]"
        _check(score, SCORE, place, required=("model", "errors"))
        if score["errors"] or not score.get("reason"):
            _check(score["errors"], {}, f"{place}.errors", required=ERRORS)
        for region, widening in score.get("widening", {}).items():
            _check(widening, {}, f"{place}.widening.{region}", required=("factor", "added"))
    best = models["best"] if scores else None
    if best is not None and best not in [score["model"] for score in scores]:
        raise ValueError(f"models has no score of its best one, {best!r}")

# SPDX-License-Identifier: Apache-2.0
"""Turns the document of a profile into an error where something in it is not what everybody takes for granted.

Profiles are copied, cut off and edited. What is wrong in one is told when it is read, by its place in it, and not by
whoever computes with it first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from characterize.workload import PARAMETERS
from selfscale.measuring.access import ENGINES
from selfscale.measuring.stop_rule import CONFIDENCE, RULES

Check = Callable[[Any], bool]


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _amount(value: Any) -> bool:
    return _number(value) and value >= 0


def _positive(value: Any) -> bool:
    return _number(value) and value > 0


def _share(value: Any) -> bool:
    return _number(value) and 0 <= value <= 1


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _list_of(check: Check, length: int | None = None) -> Check:
    return lambda value: isinstance(value, list) and length in {None, len(value)} and all(map(check, value))


def _object_of(check: Check) -> Check:
    return lambda value: isinstance(value, dict) and all(map(check, value.values()))


def _or_none(check: Check) -> Check:
    return lambda value: value is None or check(value)


OBJECTS = ("environment", "drift", "settings", "models", "knee", "table", "findings")
TOP: dict[str, Check] = {
    "boundaries_bytes": _list_of(_positive),
    "seed": _count,
    "command": _list_of(_text),
    "created": _text,
    "tool_version": _text,
    "complete": _flag,
    "ended_early": _text,
}
WORKLOAD: dict[str, Check] = {
    "uniqueBytes": _positive,
    "seqFrac": _share,
    "readFrac": _share,
    "sizeMean": _positive,
    "processNum": _positive,
}
POINT: dict[str, Check] = {
    "throughput_bytes_per_s": _amount,
    "ci95_half_width_bytes_per_s": _or_none(_amount),
    "response_time": _object_of(_or_none(_object_of(_amount))),
    "steady": _flag,
    "interval90_bytes_per_s": _or_none(_list_of(_or_none(_number), 2)),
    "role": _text,
    "region": _or_none(_count),
    "parameter": _or_none(_text),
    "repeat": _count,
    "reason": _text,
    **dict.fromkeys(("seconds", "passes", "elapsed_s", "cost_s", "resumed_s"), _amount),
    **dict.fromkeys(("device_frac", "device_write_frac", "dirtied_frac"), _or_none(_amount)),
    **dict.fromkeys(("device_reads", "device_writes", "disturbed_bytes_per_s"), _or_none(_amount)),
}
ACCESS: dict[str, Check] = {
    "mode": lambda value: value in ("buffered", "direct", "device"),
    "device": _or_none(_text),
    "writes": _flag,
    "engine": lambda value: value in ENGINES,
    "depth": _or_none(lambda value: _count(value) and value > 0),
    "sync_frac": _share,
    "dsync": _flag,
}
ENVIRONMENT: dict[str, Check] = {
    **dict.fromkeys(("read_ahead_bytes", "request_bytes", "cache_limit_bytes", "dirty_limit_bytes"), _or_none(_amount)),
    **dict.fromkeys(("cpus", "memory_bytes", "memory_limit_bytes"), _or_none(_amount)),
    **dict.fromkeys(("kernel", "filesystem", "directory", "device"), _or_none(_text)),
}
REFERENCE: dict[str, Check] = {
    "region": _count,
    "throughput_bytes_per_s": _list_of(_amount),
    "spread": _amount,
    "last_to_first": _number,
}
ERRORS = ("median", "p75", "p90", "max", "mean")
SCORE: dict[str, Check] = {
    "model": _text,
    "reason": _text,
    "count": _count,
    "errors": _object_of(_amount),
    "mean_log": _amount,
    "by_region": _list_of(lambda part: isinstance(part, dict) and _amount(part.get("median"))),
    "widening": _object_of(_object_of(_amount)),
}
KNEE: dict[str, Check] = {
    "converged": _flag,
    "rounds": _count,
    "moving": _list_of(_text),
    "out_of_time": _flag,
    "ranges": _object_of(_list_of(_number, 2)),
}
MACHINE: dict[str, Check] = {
    **dict.fromkeys(("cache_bytes", "span_bytes"), _positive),
    **dict.fromkeys(("cpus", "block_bytes"), lambda value: _count(value) and value > 0),
    **dict.fromkeys(("read_only", "stable_writes"), _flag),
    "spent_s": _amount,
}
TABLE: dict[str, Check] = {
    "parameters": lambda value: isinstance(value, list) and all(name in PARAMETERS for name in value),
    "extra": _object_of(_number),
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
        _check(region, {"low_bytes": _amount, "high_bytes": _positive}, place, required=("low_bytes", "high_bytes"))
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
    for name, check in checks.items():
        if name in value and not check(value[name]):
            raise ValueError(f"{of}{name} {value[name]!r}")


def _check_workload(value: Any, table: Mapping[str, Any], place: str) -> None:
    """Of a machine all five are known, of a table those that it has, and others."""
    if not isinstance(value, dict):
        raise TypeError(f"{place} is no object")
    known = table["parameters"] if table else PARAMETERS
    checks = {name: check if name in known else _or_none(check) for name, check in WORKLOAD.items()}
    extra = dict.fromkeys(table.get("extra", {}), _number)
    _check(value, checks | extra, place, required=[*PARAMETERS, *extra])


def _check_settings(settings: Mapping[str, Any]) -> None:
    access, target = settings.get("access", {}), settings.get("target", 1.0)
    if not isinstance(access, dict):
        raise TypeError(f"settings has access {access!r}")
    _check(access, ACCESS, "settings.access")
    if settings.get("stop_rule", CONFIDENCE) not in RULES or not _positive(target):
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

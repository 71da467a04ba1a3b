# SPDX-License-Identifier: Apache-2.0
"""Turns several characterizations, or the groups of one, into tables that stand side by side (thesis, table 3.1)."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd

from characterize.characterization import Characterization
from characterize.groups import Group, table_of
from characterize.layer_characterization import LayerCharacterization
from characterize.printable import printable
from characterize.units import format_bytes, format_duration
from characterize.workload import FIELD_OF

WIDTH = 90
_NAME_WIDTH = 16
_ABSENT = "-"

_Number = Callable[[LayerCharacterization], float]


def _fives() -> dict[str, _Number]:
    return {name: lambda it, field=field: getattr(it.parameters, field) for name, field in FIELD_OF.items()}  # type: ignore[misc]


_ROWS: dict[str, _Number] = {
    **_fives(),
    "requests": lambda it: it.requests,
    "bytes": lambda it: it.counts["read_bytes"] + it.counts["written_bytes"],
    "mean depth": lambda it: it.locality.mean_depth_bytes,
    "equivalent": lambda it: it.locality.equivalent_unique_bytes,
    "first touches": lambda it: it.locality.cold_share,
    "throughput/s": lambda it: it.time["throughput_bytes_per_s"],
    "time in I/O": lambda it: it.time["time_in_io_share"],
    "in flight": lambda it: it.concurrency.in_flight_mean,
    "read p50": lambda it: _seconds(it.response_time["read"], "p50_ns"),
    "read p99": lambda it: _seconds(it.response_time["read"], "p99_ns"),
    "write p50": lambda it: _seconds(it.response_time["write"], "p50_ns"),
    "write p99": lambda it: _seconds(it.response_time["write"], "p99_ns"),
    "think p50": lambda it: _seconds(it.think_time, "p50_ns"),
    "computing": lambda it: it.computing["share"] if it.computing else math.nan,
    "waiting": lambda it: it.waits["share"] if it.waits else math.nan,
    "coldFrac": lambda it: it.extended.get("coldFrac", math.nan),
    "appendFrac": lambda it: it.extended.get("appendFrac", math.nan),
    "syncFrac": lambda it: it.extended.get("syncFrac", math.nan),
    "directFrac": lambda it: it.extended.get("directFrac", math.nan),
}
_BYTES = {"uniqueBytes", "sizeMean", "bytes", "mean depth", "equivalent", "throughput/s"}
_SECONDS = {"read p50", "read p99", "write p50", "write p99", "think p50", "time_in_io_s"}
_WHOLE = {"requests", "processNum"}


def _seconds(times: dict[str, Any] | None, name: str) -> float:
    return math.nan if times is None or times[name] is None else times[name] / 1e9


def compared(characterizations: Sequence[Characterization], layer: str) -> pd.DataFrame:
    """The main numbers of one layer, one column per trace, by its path (or its number, if it is in no file)."""
    columns = {}
    for number, it in enumerate(characterizations, start=1):
        source = it.provenance.get("input")
        name = printable(source["path"]) if source else f"trace {number}"  # pandas refuses surrogates
        columns[name if name not in columns else f"{name} ({number})"] = {
            row: float(number_of(it.layers[layer])) for row, number_of in _ROWS.items()
        }
    return pd.DataFrame(columns)


def render_compared(characterizations: Sequence[Characterization], layers: Sequence[str]) -> str:
    """The same as text: as many columns beside each other as fit."""
    lines = []
    for layer in layers:
        table = compared(characterizations, layer)
        for number, path in enumerate(table, start=1):
            lines += textwrap.wrap(f"{number}  {path}", WIDTH, subsequent_indent="   ")
        across = (WIDTH - _NAME_WIDTH) // 13
        for first in range(0, len(table.columns), across):
            part = table.iloc[:, first : first + across]
            heads = "".join(f"{first + place:>13}" for place in range(1, len(part.columns) + 1))
            lines += ["", f"{layer.upper():<{_NAME_WIDTH}}{heads}"]
            for row, values in part.iterrows():
                lines.append(f"{row:<{_NAME_WIDTH}}" + "".join(f"{_cell(str(row), it):>13}" for it in values))
        lines.append("")
    return "\n".join(lines[:-1])


def render_groups(groups: Sequence[Group]) -> list[str]:
    """The five parameters of groups, one line each."""
    lines = []
    table = table_of(list(groups))
    for head, part in table.groupby(["by", "layer"], sort=False) if len(table) else ():
        by, layer = map(str, head)
        lines += ["", f"{by.upper()} ({layer})", f"  {'':<30}" + "".join(f"{it:>11}" for it in _GROUP_HEADS)]
        for row in part.to_dict("records"):
            about = " ".join(([] if by == "window" or pd.isna(row["key"]) else [str(row["key"])]) + [row["name"]])
            about = printable(about)
            about = about if len(about) <= 29 else "..." + about[-26:]
            cells = [_cell(name, float(row[name])) for name in _GROUP_COLUMNS]
            lines.append(f"  {about:<30}" + "".join(f"{cell:>11}" for cell in cells))
    return lines


# As many as stand in a line; the document has all.
_GROUP_COLUMNS = ("requests", "uniqueBytes", "seqFrac", "readFrac", "sizeMean")
_GROUP_HEADS = ("requests", "uniqueB.", "seqFrac", "readFrac", "sizeMean")


def _cell(row: str, value: float) -> str:
    if math.isnan(value):
        return _ABSENT
    if row in _BYTES:
        return format_bytes(value)
    if row in _SECONDS:
        return format_duration(value)
    return f"{value:.0f}" if row in _WHOLE else f"{value:.4g}" if value >= 10 else f"{value:.4f}"

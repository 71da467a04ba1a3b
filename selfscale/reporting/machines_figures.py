# SPDX-License-Identifier: Apache-2.0
"""Turns several profiles into the figures that Chen & Patterson 1994 compare machines with, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from characterize.colours import LINE, READ, REGION, SYNC, WRITE
from characterize.units import format_bytes
from selfscale.profile import Profile
from selfscale.profiles import machines
from selfscale.reporting.figures import Figure, as_shown, byte_ticks, log_axis

_COLOURS = (READ, WRITE, LINE, SYNC, "#c9a227", "#b3546b", "#4f7cac", "#7a8b3c")
_LEVEL_COLOURS = {"file cache": READ, "disk": WRITE}


def machines_figures(profiles: Sequence[Profile]) -> list[Figure]:
    """All of them."""
    draw = (cache_sizes, focal_points, common_reads, read_shares, unique_bytes)
    return [figure for one in draw if (figure := one(profiles)) is not None]


def cache_sizes(profiles: Sequence[Profile]) -> Figure | None:
    """Figure 4: size of the file cache, as a share of the memory and in bytes."""
    data = machines.cache_sizes(profiles)
    found = data.dropna(subset="cache_bytes")
    if found.empty:
        return None
    figure = go.Figure()
    x = list(map(as_shown, found["machine"]))
    share = (100 * found["share"]).tolist()
    figure.add_trace(go.Bar(x=x, y=share, marker_color=READ, name="percent of the memory (left axis)"))
    size = found["cache_bytes"].tolist()
    marker = {"size": 9, "color": WRITE}
    text = [format_bytes(value) for value in size]
    figure.add_trace(
        go.Scatter(
            x=x,
            y=size,
            yaxis="y2",
            mode="lines+markers",
            marker=marker,
            line={"color": WRITE, "width": 1.5},
            text=text,
            hovertemplate="%{text}<extra></extra>",
            name="size (right axis)",
        )
    )
    sizes = {**byte_ticks(min(size) / 2, max(size) * 2, 8), "overlaying": "y", "side": "right", "showgrid": False}
    share_axis = {"title": {"text": "percent of the memory"}, "rangemode": "tozero"}
    size_axis = {**sizes, "title": {"text": "size of the file cache"}}
    figure.update_layout(yaxis=share_axis, yaxis2=size_axis, height=420)
    missing = data.loc[data["cache_bytes"].isna(), "machine"].tolist()
    sentence = (
        "The effective size of the file cache, up to which reads keep their speed, and as a share of each machine's "
        "memory, or of the memory group that it was measured in (Chen & Patterson 1994, figure 4)."
    )
    note = f"No border was found on {', '.join(missing)}." if missing else ""
    return Figure("Size of the file cache", sentence, figure, data, note=note)


def focal_points(profiles: Sequence[Profile]) -> Figure | None:
    """Throughput at the focal points, a group of bars per machine, a bar per region."""
    data = machines.at_focal_points(profiles)
    if data.empty:
        return None
    data = _in_megabytes(data)
    figure = _level_bars(data, "MB_per_s", "half_width_95_MB_per_s")
    sentence = (
        "Throughput of Willy at the focal vector of each performance region (Chen & Patterson 1994, tables 2 and 3). "
        "Each machine's benchmark chose its own vectors, which stand in the table, so that bars of different machines "
        "are of different workloads; the next figure has the same request on all. Error bars are 95 % "
        "confidence intervals."
    )
    return Figure("Throughput at the focal points", sentence, figure, data)


def common_reads(profiles: Sequence[Profile]) -> Figure | None:
    """Figures 2 and 3: reads of 32 KiB from the file cache and from the disk."""
    data = machines.reads_of_common_size(profiles)
    if data.empty or data["common_size_bytes_per_s"].isna().all():
        return None
    data = _in_megabytes(data)
    data = data.sort_values("common_size_MB_per_s", ascending=False, kind="stable", ignore_index=True)
    figure = _level_bars(data, "common_size_MB_per_s")
    unknown = data[data["common_size_MB_per_s"].isna()]
    missing = [f"{machine} {level}" for machine, level in zip(unknown["machine"], unknown["level"], strict=True)]
    size = format_bytes(machines.COMMON_SIZE_BYTES)
    sentence = (
        f"Reads of {size} from the file cache and from the disk (Chen & Patterson 1994, figures 2 and 3), the fastest "
        "machine first: measured with reads only at the focal size of each region, and taken to the common size by the "
        "curve of sizeMean; the multipliers stand in the table."
    )
    note = f"Curves do not reach {size} or reads only: {', '.join(missing)}." if missing else ""
    return Figure(f"Reads of {size}", sentence, figure, data, note=note)


def read_shares(profiles: Sequence[Profile]) -> Figure | None:
    """Figure 5: file cache throughput against the share of reads."""
    data = machines.by_read_share(profiles)
    if data.empty or data["bytes_per_s"].isna().all():
        return None
    data = _in_megabytes(data)
    figure = _lines(data, "readFrac")
    figure.update_xaxes(title_text="readFrac", range=[-0.02, 1.02])
    figure.update_yaxes(title_text="MB/s", rangemode="tozero")
    sentence = (
        f"Throughput of the file cache against the share of reads, with requests of "
        f"{format_bytes(machines.COMMON_SIZE_BYTES)} (Chen & Patterson 1994, figure 5). Where writes are cached a line "
        "is flat; where they wait for the disk it rises only towards the right."
    )
    return Figure("File cache against the share of reads", sentence, figure, data)


def unique_bytes(profiles: Sequence[Profile]) -> Figure | None:
    """Figures 7 and 8: throughput against uniqueBytes."""
    data = machines.by_unique_bytes(profiles)
    if data.empty:
        return None
    data = _in_megabytes(data)
    figure = _lines(data, "uniqueBytes")
    figure.update_xaxes(byte_ticks(data["uniqueBytes"].min(), data["uniqueBytes"].max(), 12), title_text="uniqueBytes")
    figure.update_yaxes(title_text="MB/s", **log_axis(data["MB_per_s"]))
    sentence = (
        "Throughput against the bytes that are touched (Chen & Patterson 1994, figures 7 and 8), both axes "
        "logarithmic, with the sizeMean that each machine's benchmark chose."
    )
    return Figure("Throughput against uniqueBytes", sentence, figure, data)


def _in_megabytes(data: pd.DataFrame) -> pd.DataFrame:
    """Columns in bytes per second become columns in MB/s."""
    rates = [str(name) for name in data if str(name).endswith("bytes_per_s")]
    changed = data.assign(**{name: data[name] / 1e6 for name in rates})
    return changed.rename(columns={name: name.replace("bytes_per_s", "MB_per_s") for name in rates})


def _level_bars(data: pd.DataFrame, column: str, half_width: str | None = None) -> go.Figure:
    """A graph for each level of the storage hierarchy, a bar for each machine."""
    levels = sorted(data["level"].unique(), key=lambda name: (name != "file cache", name == "disk", name))
    figure = make_subplots(rows=1, cols=len(levels), subplot_titles=levels)
    for place, level in enumerate(levels, 1):
        part = data[data["level"] == level].dropna(subset=column)
        more: dict[str, Any] = {}
        if half_width is not None:
            known = part[half_width].where(np.isfinite(part[half_width]), 0.0)
            more["error_y"] = {"type": "data", "array": known.tolist(), "thickness": 1.5, "color": REGION}
        colour = _LEVEL_COLOURS.get(level, SYNC)
        x, y = list(map(as_shown, part["machine"])), part[column].tolist()
        figure.add_trace(go.Bar(x=x, y=y, name=level, marker_color=colour, **more), 1, place)
    figure.update_layout(height=420, showlegend=False)
    figure.update_yaxes(rangemode="tozero")
    figure.update_yaxes(title_text="MB/s", row=1, col=1)
    return figure


def _lines(data: pd.DataFrame, x: str) -> go.Figure:
    """A line per machine."""
    figure = go.Figure()
    for number, (machine, part) in enumerate(data.groupby("machine", sort=False)):
        line = {"color": _COLOURS[number % len(_COLOURS)], "width": 2}
        of_machine = {"x": part[x].tolist(), "y": part["MB_per_s"].tolist(), "name": as_shown(str(machine))}
        figure.add_trace(go.Scatter(mode="lines+markers", line=line, **of_machine))
    figure.update_layout(height=420)
    return figure

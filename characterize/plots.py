# SPDX-License-Identifier: Apache-2.0
"""Turns the data behind a trace's figures into matplotlib figures, for notebooks and papers.

    import characterize
    from characterize import plots
    from characterize.characterization import characterize as numbers_of
    from characterize.figure_data import figure_data_of

    trace = characterize.open("sort.iotrace")
    data = figure_data_of(trace, numbers_of(trace))["vfs"]
    plots.miss_ratio_curve(data)

Figures are matplotlib's own objects, not registered with pyplot: nothing has to be closed, and a notebook that has
imported pyplot shows the one that is the last value of a cell. matplotlib is the optional extra ``figures``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from characterize.colours import LINE, READ, REGION, SYNC, WRITE
from characterize.errors import FlextraceError
from characterize.figure_data import PERCENTILES, TITLES, FigureData
from characterize.places import Places
from characterize.printable import printable
from characterize.requests import Layer
from characterize.trace_files.new_file import new_file, without_empty
from characterize.units import format_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("png", "svg", "pdf")
_SINCE = "time since the trace's first operation, s"
_DIRECTIONS = (("reads", READ), ("writes", WRITE))
_LABEL_LENGTH = 32


def sizes(data: FigureData) -> Figure:
    """Requests by power of two of their size."""
    figure, (axes,) = _figure(f"Sizes, {TITLES[data.layer]}")
    place = np.arange(len(data.sizes))
    for side, (name, colour) in zip((-0.2, 0.2), _DIRECTIONS, strict=True):
        axes.bar(place + side, data.sizes[name], 0.4, color=colour, label=name)
    axes.set_xticks(place, [format_bytes(low) for low in data.sizes["low_bytes"]], rotation=45, ha="right")
    axes.set(xlabel="size from (to twice as much), bytes", ylabel="requests")
    axes.legend()
    return figure


def miss_ratio_curve(data: FigureData) -> Figure:
    """Miss ratio of an LRU cache against its size, with uniqueBytes and the memory limit marked."""
    figure, (axes,) = _figure(f"Miss-ratio curve, {TITLES[data.layer]}")
    axes.plot(data.miss_ratios["cache_bytes"], data.miss_ratios["miss_ratio"], ".-", markersize=3, color=LINE)
    for number, (name, value) in enumerate(data.marks.items()):
        axes.axvline(value, color=REGION, linestyle=":")
        axes.text(value, 0.05 + 0.08 * number, f"{name} {format_bytes(value)} ", ha="right")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda value, _: format_bytes(value))
    axes.tick_params(axis="x", rotation=45)
    axes.set(xlabel="size of an LRU cache, bytes", ylabel="share of 4 KiB blocks missed", ylim=(0, 1.02))
    return figure


def rate_and_depth(data: FigureData) -> Figure:
    """Bytes per second and requests in flight over time; only the rate where durations are not measurements.

    Raises
    ------
    FlextraceError
        The trace's times are not measurements.
    """
    table = _measured(data.rate_and_depth)
    deep = bool(table["in_flight_mean"].notna().any())
    figure, graphs = _figure(f"Rate{' and depth' if deep else ''} over time, {TITLES[data.layer]}", 1 + deep)
    for name, colour in _DIRECTIONS:
        graphs[0].step(table["from_s"], table[f"{name}_MB_per_s"], where="post", color=colour, label=name)
    graphs[0].set(ylabel="MB/s", ylim=(0, None))
    graphs[0].legend()
    if deep:
        graphs[1].step(table["from_s"], table["in_flight_mean"], where="post", color=LINE)
        graphs[1].set(ylabel="requests in flight", ylim=(0, None))
    graphs[-1].set_xlabel(_SINCE)
    return figure


def offsets_over_time(data: FigureData) -> Figure:
    """Where requests went over time: a mark each, or how many went where if they are too many (`characterize.places`).

    Raises
    ------
    FlextraceError
        The trace's times are not measurements.
    """
    check_matplotlib()
    from matplotlib.ticker import EngFormatter  # noqa: PLC0415 (optional)

    places: Places = _measured(data.places)
    title = f"Offsets over time, {TITLES[data.layer]}"
    points = places.points()
    if points is not None:
        figure, (axes,) = _figure(title)
        for (name, colour), read in zip(_DIRECTIONS, (True, False), strict=True):
            part = points[points["read"] == read]
            if part.empty:
                continue
            axes.plot(part["time_s"], part["place_bytes"], ".", markersize=2, color=colour, label=name)
        graphs: Sequence[Axes] = [axes]
        axes.legend(markerscale=4)
        axes.set_ylabel(f"place in the {_thing(data)}s, bytes")
    else:
        shown = [index for index in range(2) if places.counts[index].any()]
        figure, graphs = _figure(title, len(shown))
        bands = places.band_bytes * np.arange(places.counts.shape[1] + 1)
        for axes, index in zip(graphs, shown, strict=True):
            _heat_map(axes, places, bands, places.counts[index], "requests")
            axes.set_ylabel(f"{_DIRECTIONS[index][0]}: place in the {_thing(data)}s, bytes")
    for axes in graphs:
        axes.yaxis.set_major_formatter(EngFormatter("B"))
    graphs[-1].set_xlabel(_SINCE)
    return figure


def activity_of_files(data: FigureData) -> Figure:
    """Bytes by file and time, the file with most at the top.

    Raises
    ------
    FlextraceError
        The trace's times are not measurements.
    """
    places: Places = _measured(data.places)
    figure, (axes,) = _figure(f"Activity of each {_thing(data)}, {TITLES[data.layer]}")
    edges = np.arange(len(places.names) + 1) - 0.5
    _heat_map(axes, places, edges, places.moved.sum(axis=0), "bytes")
    # A path is no formula, and may have bytes that no font has.
    names = [printable(name) for name in places.names]
    labels = [name if len(name) <= _LABEL_LENGTH else "…" + name[1 - _LABEL_LENGTH :] for name in names]
    axes.set_yticks(np.arange(len(labels)), labels, parse_math=False)
    axes.invert_yaxis()
    axes.set(xlabel=_SINCE, ylabel=_thing(data))
    return figure


def response_times(data: FigureData) -> Figure:
    """Percentiles of the response times of reads, writes and syncs.

    Raises
    ------
    FlextraceError
        The trace's durations are not measurements.
    """
    table = _measured(data.response_times)
    figure, (axes,) = _figure(f"Response times, {TITLES[data.layer]}")
    colours = {"read": READ, "write": WRITE, "sync": SYNC}
    for row in table.to_dict("records"):
        times = [row[f"p{percent:g}_us"] for percent in PERCENTILES]
        axes.plot(np.arange(len(PERCENTILES)), times, "o-", color=colours[row["operation"]], label=row["operation"])
    axes.set_xticks(np.arange(len(PERCENTILES)), [f"{percent:g}" for percent in PERCENTILES])
    axes.set_yscale("log")
    axes.set(xlabel="percent of the operations that took at most this long", ylabel="response time, µs")
    axes.legend()
    return figure


FIGURES: dict[str, tuple[Callable[[FigureData], Figure], str]] = {
    "sizes": (sizes, "sizes"),
    "miss-ratio-curve": (miss_ratio_curve, "miss_ratios"),
    "rate-and-depth": (rate_and_depth, "rate_and_depth"),
    "offsets-over-time": (offsets_over_time, "places"),
    "activity-of-files": (activity_of_files, "places"),
    "response-times": (response_times, "response_times"),
}
"""What is drawn, by which function, and the field of `FigureData` without which it cannot be."""


def figure_paths(directory: Path, trace: Path, layers: Sequence[Layer], suffix: str) -> dict[tuple[Layer, str], Path]:
    """Where the figures of a trace go, by layer and name."""
    stem = trace.name.split(".")[0] or trace.name
    return {(layer, name): directory / f"{stem}-{layer}-{name}.{suffix}" for layer in layers for name in FIGURES}


def write_figures(data: Mapping[Layer, FigureData], paths: Mapping[tuple[Layer, str], Path]) -> list[Path]:
    """Write every figure that the data allows.

    Parameters
    ----------
    data : mapping
        As from `characterize.figure_data.figure_data_of`.
    paths : mapping
        As from `figure_paths`; their directory is made.

    Returns
    -------
    list of Path
        Of the files.

    Raises
    ------
    FlextraceError
        matplotlib is missing, or a file exists already or cannot be written.
    """
    written = []
    for (layer, name), path in paths.items():
        draw, needed = FIGURES[name]
        if layer not in data or getattr(data[layer], needed) is None:
            continue
        with without_empty(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
            with new_file(path) as stream:
                draw(data[layer]).savefig(stream, format=path.suffix[1:], dpi=150)
        written.append(path)
    return written


def check_matplotlib() -> None:
    """Refuse early where nothing can be drawn.

    Raises
    ------
    FlextraceError
        matplotlib is missing.
    """
    try:
        import matplotlib.figure  # noqa: F401, PLC0415 (optional)
    except ImportError as error:
        raise FlextraceError(
            f"drawing figures needs matplotlib, which is not installed ({error}): install flextrace[figures], or use "
            "'flextrace report', which does not need it"
        ) from error


def _figure(title: str, rows: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure of graphs above each other that share their x axis."""
    check_matplotlib()
    from matplotlib.figure import Figure  # noqa: PLC0415 (optional, and slow to import)

    figure = Figure(figsize=(8, 2 + 2.5 * rows), layout="constrained")
    graphs = figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0]
    graphs[0].set_title(title)
    return figure, list(graphs)


def _heat_map(axes: Axes, places: Places, edges: np.ndarray, values: np.ndarray, unit: str) -> None:
    """Colours on a logarithmic scale; nothing where there is nothing."""
    from matplotlib.colors import LogNorm  # noqa: PLC0415 (optional)

    times = places.window_s * np.arange(values.shape[1] + 1)
    shown = np.ma.masked_equal(values, 0)
    norm = LogNorm(shown.min(), max(shown.max(), shown.min() * 10))
    mesh = axes.pcolormesh(times, edges, shown, norm=norm, rasterized=True)
    axes.figure.colorbar(mesh, ax=axes, label=unit)


def _thing(data: FigureData) -> str:
    """What requests of a layer go to."""
    return "file" if data.layer == "vfs" else "device"


def _measured(table: Any) -> Any:
    if table is None:
        raise FlextraceError(
            "this trace has no such times: it has not run yet, or its format does not tell them; replay and record it"
        )
    return table

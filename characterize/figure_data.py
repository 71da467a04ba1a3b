# SPDX-License-Identifier: Apache-2.0
"""Turns a characterized trace into the tables behind its figures, which reports and notebooks draw alike.

Their size does not depend on the trace's: what there is too much of to be drawn one by one is counted in bins. A stream
need not fit into memory; it is read twice more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from characterize.characterization import Characterization
from characterize.counting.log_histogram import LogHistogram
from characterize.layer_chunks import layer_chunks
from characterize.layer_summary import LayerChunk
from characterize.places import PlaceCounts, Places, Spans
from characterize.requests import Layer, Mmap, times_measured
from characterize.response_time import times_by_kind
from characterize.stream import Stream, stream_of
from characterize.trace import Trace

TITLES: dict[Layer, str] = {"vfs": "application's layer (VFS)", "block": "block layer"}
PERCENTILES = (1, 5, 10, 25, 50, 75, 90, 95, 99, 99.9, 99.99, 100)


@dataclass(frozen=True)
class FigureData:
    """What the figures of one layer show.

    Attributes
    ----------
    layer : {"vfs", "block"}
    sizes : DataFrame
        As `characterize.sizes.Sizes.histogram`.
    miss_ratios : DataFrame
        As `characterize.locality.Locality.miss_ratio_curve`.
    marks : dict of str to float
        Sizes in bytes that stand beside the miss ratios: uniqueBytes, equivalent uniqueBytes, the memory limit.
    rate_and_depth : DataFrame or None
        As from `rate_and_depth`; None where starts are not measurements, as the two below.
    places : Places or None
    response_times : DataFrame or None
        As from `response_percentiles`; None where times are not measurements.
    """

    layer: Layer
    sizes: pd.DataFrame
    miss_ratios: pd.DataFrame
    marks: dict[str, float]
    rate_and_depth: pd.DataFrame | None
    places: Places | None
    response_times: pd.DataFrame | None


def figure_data_of(trace: Trace | Stream, numbers: Characterization) -> dict[Layer, FigureData]:
    """The data behind the figures of every layer that has requests.

    Parameters
    ----------
    trace : Trace or Stream
    numbers : Characterization
        Of that trace.
    """
    stream = trace if isinstance(trace, Stream) else stream_of(trace)
    layers = layers_with_places(stream.facts, numbers)
    seen = places_and_times(stream, numbers.mmap, spans_of(stream, numbers.mmap, layers)) if layers else {}
    return figure_data(stream.facts, numbers, seen)


def layers_with_places(facts: Trace, numbers: Characterization) -> list[Layer]:
    """Layers whose requests have to be looked at again: all that have some, if their starts are measurements."""
    return [layer for layer in TITLES if numbers.layers[layer].requests and facts.measured]


def figure_data(facts: Trace, numbers: Characterization, seen: Mapping[Layer, Seen]) -> dict[Layer, FigureData]:
    """The data of every layer that has requests.

    Parameters
    ----------
    facts : Trace
        As of a `characterize.stream.Stream`.
    numbers : Characterization
    seen : mapping of str to Seen
        Of the layers with places.
    """
    limit = facts.header.metadata.get("memory_limit_bytes")
    data = {}
    for layer in TITLES:
        one = numbers.layers[layer]
        if not one.requests:
            continue
        marks = {"uniqueBytes": one.parameters.unique_bytes}
        marks["equivalent uniqueBytes"] = one.locality.equivalent_unique_bytes
        if limit and layer == "vfs":
            marks["memory limit"] = float(limit)
        data[layer] = FigureData(
            layer=layer,
            sizes=one.size_histogram,
            miss_ratios=one.locality.miss_ratio_curve(),
            marks={name: value for name, value in marks.items() if np.isfinite(value) and value > 0},
            rate_and_depth=None if one.over_time is None else rate_and_depth(one.over_time),
            places=seen[layer].places if layer in seen else None,
            response_times=response_percentiles(seen[layer].times) if layer in seen and times_measured(facts) else None,
        )
    return data


def rate_and_depth(over_time: pd.DataFrame) -> pd.DataFrame:
    """Rates of what `characterize.over_time` counted.

    Returns
    -------
    DataFrame
        ``from_s``, ``reads_MB_per_s, writes_MB_per_s, reads_per_s, writes_per_s`` of the requests that start in a
        window, ``in_flight_mean``, ``working_set_bytes``.
    """
    from_s = over_time["from_s"].to_numpy()
    # A single window is that of a trace whose only moment has no length: 1 ns, as it was counted.
    width_s = from_s[1] - from_s[0] if len(from_s) > 1 else 1e-9
    return pd.DataFrame(
        {
            "from_s": from_s,
            "reads_MB_per_s": over_time["read_bytes"] / width_s / 1e6,
            "writes_MB_per_s": over_time["written_bytes"] / width_s / 1e6,
            "reads_per_s": over_time["reads"] / width_s,
            "writes_per_s": over_time["writes"] / width_s,
            "in_flight_mean": over_time["in_flight_mean"],
            "working_set_bytes": over_time["working_set_bytes"],
        }
    )


def response_percentiles(times: Mapping[str, LogHistogram]) -> pd.DataFrame:
    """Response times within which a share of the operations was over.

    Returns
    -------
    DataFrame
        A row per operation that occurs: ``operation`` (read, write, sync), ``count, mean_us``, and a column ``pN_us``
        for each of `PERCENTILES`, values that occurred, at most 0.4 % too large.
    """
    rows = []
    for name, one in times.items():
        if one.count:
            quantiles = {f"p{percent:g}_us": one.quantile(percent / 100) / 1e3 for percent in PERCENTILES}
            rows.append({"operation": name, "count": one.count, "mean_us": one.mean / 1e3, **quantiles})
    return pd.DataFrame(rows)


class Seen:
    """Where the requests of a layer went, and how long they and syncs took.

    Parameters
    ----------
    stream : Stream
    layer : {"vfs", "block"}
    files : DataFrame
        As from `characterize.places.Spans.files`.

    Attributes
    ----------
    places : Places
    times : dict of str to LogHistogram
        Of ``read``, ``write``, ``sync``.
    """

    def __init__(self, stream: Stream, layer: Layer, files: pd.DataFrame) -> None:
        paths = stream.facts.paths
        name_of: dict[Layer, Callable[[int], str]] = {
            "vfs": lambda file: paths.get(file, f"file {file}"),
            "block": stream.facts.device_name,
        }
        self.places = Places(files, stream.first_ns, stream.last_ns, name_of[layer])
        self.times = {name: LogHistogram() for name in ("read", "write", "sync")}

    def add(self, chunk: LayerChunk) -> None:
        """Look at a chunk."""
        requests, syncs = chunk.requests, chunk.syncs
        if len(requests["bytes"]):
            self.places.add(requests)
        for name, times in times_by_kind(requests, syncs).items():
            self.times[name].add(times)

    def merge(self, counted: PlaceCounts, times: Mapping[str, LogHistogram]) -> None:
        """Add what another one counted and timed, all of whose requests start after these."""
        self.places.counted.merge(counted)
        for name, its in times.items():
            self.times[name].merge(its)


def spans_of(stream: Stream, mmap: Mmap, layers: Sequence[Layer]) -> dict[Layer, Spans]:
    """The first look: how high the files of some layers stand."""
    spans = {layer: Spans() for layer in layers}
    for layer, chunk in layer_chunks(stream, mmap, layers):
        spans[layer].add(chunk.requests)
    return spans


def places_and_times(stream: Stream, mmap: Mmap, spans: Mapping[Layer, Spans]) -> dict[Layer, Seen]:
    """The second look; `spans`: of the whole trace."""
    seen = {layer: Seen(stream, layer, its.files()) for layer, its in spans.items()}
    for layer, chunk in layer_chunks(stream, mmap, list(spans)):
        seen[layer].add(chunk)
    return seen

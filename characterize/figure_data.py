# SPDX-License-Identifier: Apache-2.0
"""Turns a characterized trace into the tables behind its figures, which reports and notebooks draw alike.

Their size does not depend on the trace's: what there is too much of to be drawn one by one is counted in bins. A stream
need not fit into memory; it is read twice more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from characterize.characterization import Characterization
from characterize.layer_characterization import LayerCharacterization
from characterize.layer_chunks import ApplicationChunks, BlockChunks
from characterize.layer_summary import LayerChunk
from characterize.layout import device_name
from characterize.log_histogram import LogHistogram
from characterize.places import Places, Spans
from characterize.requests import Layer, Mmap, arrivals_measured, times_measured
from characterize.response_time import end_seen
from characterize.stream import Chunk, Stream, one_ahead, stream_of
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
    facts = stream.facts
    layers: dict[Layer, LayerCharacterization] = {
        layer: numbers.layers[layer] for layer in TITLES if numbers.layers[layer].requests
    }
    passes = _Passes(stream, numbers.mmap, list(layers)) if layers and arrivals_measured(facts) else None
    limit = facts.header.metadata.get("memory_limit_bytes")
    data = {}
    for layer, one in layers.items():
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
            places=passes.places[layer] if passes else None,
            response_times=response_percentiles(passes.times[layer]) if passes and times_measured(facts) else None,
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


class _Passes:
    """Two looks at the requests of some layers."""

    def __init__(self, stream: Stream, mmap: Mmap, layers: list[Layer]) -> None:
        spans = {layer: Spans() for layer in layers}
        for layer, chunk in _chunks(stream, mmap, layers):
            spans[layer].add(chunk.requests)
        paths = stream.facts.paths
        name_of: dict[Layer, Callable[[int], str]] = {
            "vfs": lambda file: paths.get(file, f"file {file}"),
            "block": device_name,
        }
        self.places = {
            layer: Places(spans[layer].files(), stream.first_ns, stream.last_ns, name_of[layer]) for layer in layers
        }
        self.times = {layer: {name: LogHistogram() for name in ("read", "write", "sync")} for layer in layers}
        for layer, chunk in _chunks(stream, mmap, layers):
            requests, syncs, times = chunk.requests, chunk.syncs, self.times[layer]
            if len(requests["bytes"]):
                self.places[layer].add(requests)
            duration, read, seen = requests["end_ns"] - requests["start_ns"], requests["read"], end_seen(requests)
            times["read"].add(duration[read & seen])
            times["write"].add(duration[~read & seen])
            times["sync"].add(syncs["end_ns"] - syncs["start_ns"])


def _chunks(stream: Stream, mmap: Mmap, layers: list[Layer]) -> Iterator[tuple[Layer, LayerChunk]]:
    application, block = ApplicationChunks(stream, mmap), BlockChunks(stream)
    for part in one_ahead(stream.chunks()):
        if isinstance(part, Chunk):
            for layer in layers:
                yield layer, application.chunk(part) if layer == "vfs" else block.chunk(part)

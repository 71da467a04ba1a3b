# SPDX-License-Identifier: Apache-2.0
"""Turns a trace into everything that design.md section 4 defines, for both layers, and that into one JSON document."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from characterize.concurrency import Concurrency, concurrency_of, littles_law
from characterize.definitions import DEFINITIONS
from characterize.document import plain
from characterize.layout import NOT_MEASURED_U64, HeaderFlag, RecordKind, Source
from characterize.links import Links, links_of
from characterize.loss import LOWER_BOUNDS, estimated_from_totals, is_lossy, known_from_totals
from characterize.provenance import provenance_of
from characterize.requests import LAYERS, Layer, Mmap, block_records, left_out, requests_of, times_measured
from characterize.response_time import distribution, response_times, syncs_of, think_times, time_in_sync_s
from characterize.sizes import common_sizes, size_histogram
from characterize.trace import Trace
from characterize.workload import Workload, workload_of

SCHEMA = "flextrace.characterization/1"
THREADS_LISTED = 64
DEPTH_QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9, 0.99)

_NO_TIMES = dict.fromkeys(("read", "write", "sync"))


@dataclass(frozen=True)
class LayerCharacterization:
    """Everything about one layer; NaN or None where a number has no meaning for this trace.

    Attributes
    ----------
    parameters : Workload
        The five.
    declared : bool
        Whether processNum is what the trace's maker declared instead of what was counted.
    lower_bounds, from_totals, estimated_from_totals : tuple of str
        Where records of this layer were lost: parameters that are too low, those that the recorder's own totals still
        give exactly, and those that they give but for accesses to mapped files.
    counts : dict
        reads, writes, read_bytes, written_bytes, failed (operations with an error), empty (those of 0 bytes), syncs;
        application's layer: mapped and mapped_bytes (those that are accesses to mapped files), left_out and
        left_out_bytes (such accesses that do not count, see `characterize.requests.left_out`).
    locality : `characterize.locality.Locality`
    sequentiality : dict of str to float
        All five definitions.
    concurrency : Concurrency
    time : dict of str to float
        time_in_io_s, time_in_io_share, time_in_sync_s, throughput_bytes_per_s, throughput_in_io_bytes_per_s.
    response_time : dict
        ``read``, ``write``, ``sync``, each as from `characterize.response_time.distribution` or None.
    think_time, queue_time : dict or None
        As from `characterize.response_time.distribution`; think times at the application's layer only.
    think_per_thread : DataFrame
        ``thread, gaps, think_mean_s, think_p50_s``.
    littles_law : dict of str to float
        Application's layer only, as think times.
    size_histogram, common_sizes : DataFrame
    extended : dict of str to float
    """

    parameters: Workload
    declared: bool
    counts: dict[str, int]
    locality: Any
    sequentiality: dict[str, float]
    concurrency: Concurrency
    time: dict[str, float]
    response_time: dict[str, Any]
    think_time: dict[str, Any] | None
    queue_time: dict[str, Any] | None
    think_per_thread: pd.DataFrame
    littles_law: dict[str, float]
    size_histogram: pd.DataFrame
    common_sizes: pd.DataFrame
    extended: dict[str, float]
    lower_bounds: tuple[str, ...] = ()
    from_totals: tuple[str, ...] = ()
    estimated_from_totals: tuple[str, ...] = ()

    @property
    def requests(self) -> int:
        """Reads and writes."""
        return self.counts["reads"] + self.counts["writes"]

    def as_document(self) -> dict[str, Any]:
        """This layer's part of the document."""
        locality, load = self.locality, self.concurrency
        threads = load.per_thread.merge(self.think_per_thread, on="thread", how="left")
        document = {
            "parameters": self.parameters.as_document(),
            "declared": ["processNum"] if self.declared else [],
            "lower_bounds": self.lower_bounds,
            "from_totals": self.from_totals,
            "estimated_from_totals": self.estimated_from_totals,
            "counts": self.counts,
            **self.time,
            "locality": {
                "block_bytes": locality.block_bytes,
                "references": locality.references,
                "cold_share": locality.cold_share,
                "mean_depth_bytes": locality.mean_depth_bytes,
                "depth_quantiles_bytes": {f"p{100 * q:g}": locality.quantile_bytes(q) for q in DEPTH_QUANTILES},
                "equivalentUniqueBytes": locality.equivalent_unique_bytes,
                "miss_ratio_curve": locality.miss_ratio_curve(),
            },
            "sequentiality": self.sequentiality,
            "concurrency": {
                "in_flight_max": load.in_flight_max,
                "in_flight_mean": load.in_flight_mean,
                "queue_depth_per_thread": load.queue_depth_per_thread,
                "threads": load.threads,
                "per_thread": threads.sort_values("bytes", ascending=False, kind="stable").head(THREADS_LISTED),
            },
            "response_time": self.response_time,
            "think_time": self.think_time,
            "queue_time": self.queue_time,
            "littles_law": self.littles_law,
            "size": {"histogram": self.size_histogram, "common": self.common_sizes},
            "extended": self.extended,
        }
        return plain(document)


@dataclass(frozen=True)
class Characterization:
    """A trace reduced to numbers.

    Attributes
    ----------
    layers : dict of str to LayerCharacterization
        ``vfs`` and ``block``, also where one has no requests.
    elapsed_s : float
        NaN where the trace's times are not measurements.
    trace : dict
        What kind of trace: flags, measured, durations_measured, elapsed_from, lineage.
    lost : dict of str to int
        Records lost by kind; not empty means that the numbers are not trustworthy.
    warnings : list of str
    links : `characterize.links.Links`
        Why the bytes of the block layer moved.
    mmap : {"data", "all", "none"}
        Which accesses to mapped files count as requests.
    provenance : dict
    """

    layers: dict[str, LayerCharacterization]
    elapsed_s: float
    trace: dict[str, Any]
    lost: dict[str, int]
    warnings: list[str]
    links: Links
    mmap: Mmap
    provenance: dict[str, Any] = field(default_factory=dict)

    @property
    def trustworthy(self) -> bool:
        """Whether no record was lost while recording."""
        return not self.lost and HeaderFlag.LOST.name not in self.trace["flags"]

    def as_document(self) -> dict[str, Any]:
        """The document ``flextrace.characterization/1``."""
        return {
            "schema": SCHEMA,
            **self.provenance,
            "trustworthy": self.trustworthy,
            "warnings": self.warnings,
            "lost": self.lost,
            "trace": self.trace,
            "mmap": self.mmap,
            "elapsed_s": plain(self.elapsed_s),
            "layers": {name: layer.as_document() for name, layer in self.layers.items()},
            "links": self.links.as_document(),
            "definitions": DEFINITIONS,
        }


def characterize(trace: Trace, mmap: Mmap = "data") -> Characterization:
    """Reduce a trace to numbers.

    Parameters
    ----------
    trace : Trace
        Any: also empty, incomplete, with one layer only, or not run yet.
    mmap : {"data", "all", "none"}
        Which accesses to mapped files count as requests, see `characterize.requests.left_out`.

    Returns
    -------
    Characterization
    """
    elapsed_s, elapsed_from = elapsed_of(trace)
    metadata = trace.header.metadata
    warnings = list(trace.warnings)
    if trace.header.lost and not any("lost" in warning for warning in warnings):
        lost = ", ".join(f"{count} {kind.name}" for kind, count in trace.header.lost.items())
        warnings.append(f"records were lost while recording ({lost}); uniqueBytes is a lower bound")
    if not trace.measured:
        warnings.append(
            "this trace has not run yet: its times are not measurements, every number made from times is null; "
            "replay it and record that to measure them"
        )
    elif not times_measured(trace):
        warnings.append("this trace has no durations: numbers in flight, response and think times are null")
    return Characterization(
        layers={layer: _characterize_layer(trace, layer, elapsed_s, mmap) for layer in LAYERS},
        elapsed_s=elapsed_s,
        trace={
            "flags": [flag.name for flag in HeaderFlag if flag in trace.header.flags],
            "measured": trace.measured,
            "durations_measured": times_measured(trace),
            "elapsed_from": elapsed_from,
            "declared": trace.declared,
            "lineage": {
                name: metadata[name] for name in ("made_by", "parent", "lineage", "imported") if name in metadata
            },
        },
        lost={kind.name: count for kind, count in trace.header.lost.items()},
        warnings=warnings,
        links=links_of(trace),
        mmap=mmap,
        provenance=provenance_of(trace.path),
    )


def elapsed_of(trace: Trace) -> tuple[float, str | None]:
    """Elapsed seconds, and whether they are from the ``header`` or the ``records``; NaN, None where not measured."""
    header = trace.header
    if not trace.measured:
        return math.nan, None
    if 0 < header.start_monotonic_ns < header.end_monotonic_ns:
        return (header.end_monotonic_ns - header.start_monotonic_ns) / 1e9, "header"
    arrays = [trace.arrays[kind] for kind in (RecordKind.IO, RecordKind.FILEOP, RecordKind.BLOCK)]
    starts = [int(array["start_ns"].min()) for array in arrays if len(array)]
    ends = [int((array["start_ns"] + array["duration_ns"]).max()) for array in arrays if len(array)]
    if not starts or max(ends) == min(starts):
        return math.nan, None
    return (max(ends) - min(starts)) / 1e9, "records"


def _characterize_layer(trace: Trace, layer: Layer, elapsed_s: float, mmap: Mmap) -> LayerCharacterization:
    # numba and what needs it is slow to import; a caller that only wants the five does not pay for it.
    from characterize.extended import extended_of, extended_of_block  # noqa: PLC0415
    from characterize.locality import locality_of  # noqa: PLC0415
    from characterize.sequentiality import sequential_shares  # noqa: PLC0415

    requests, syncs, measured = requests_of(trace, layer, mmap), syncs_of(trace, layer), times_measured(trace)
    workload = workload_of(trace, layer, mmap)
    lossy = is_lossy(trace, layer)
    load = concurrency_of(requests, measured)
    total = int(requests["bytes"].sum())
    # Below the page cache a thread is at best who submitted a request, so that its pauses mean nothing.
    thinking = measured and layer == "vfs"
    thinks = think_times(requests if thinking else requests.iloc[:0])
    times: dict[str, Any] = response_times(requests, syncs) if measured else _NO_TIMES
    throughput = total / elapsed_s if elapsed_s > 0 else math.nan
    response_mean_s = float((requests["end_ns"] - requests["start_ns"]).mean()) / 1e9
    think_mean_s = float(thinks["think_ns"].mean()) / 1e9 if len(thinks) else 0.0
    in_cycle = load.threads * load.queue_depth_per_thread if thinking else math.nan
    return LayerCharacterization(
        parameters=workload,
        declared=not measured and not math.isnan(workload.process_num),
        lower_bounds=LOWER_BOUNDS if lossy else (),
        from_totals=known_from_totals(trace, mmap) if lossy and layer == "vfs" else (),
        estimated_from_totals=estimated_from_totals(trace, mmap) if lossy and layer == "vfs" else (),
        counts=_counts(trace, layer, requests, syncs) | (_mapped(trace, requests, mmap) if layer == "vfs" else {}),
        locality=locality_of(requests),
        sequentiality={"seqFrac": workload.seq_frac, **sequential_shares(requests, layer)},
        concurrency=load,
        time={
            "time_in_io_s": load.time_in_io_s,
            "time_in_io_share": load.time_in_io_s / elapsed_s if elapsed_s > 0 else math.nan,
            "time_in_sync_s": time_in_sync_s(syncs) if measured else math.nan,
            "throughput_bytes_per_s": throughput,
            "throughput_in_io_bytes_per_s": total / load.time_in_io_s if load.time_in_io_s > 0 else math.nan,
        },
        response_time=times,
        think_time=distribution(thinks["think_ns"].to_numpy()) if thinking else None,
        queue_time=_queue_time(requests),
        think_per_thread=_think_per_thread(thinks),
        littles_law=littles_law(workload.size_mean, response_mean_s, think_mean_s, in_cycle, throughput),
        size_histogram=size_histogram(requests),
        common_sizes=common_sizes(requests),
        extended=extended_of(trace, requests, syncs) if layer == "vfs" else extended_of_block(trace, requests),
    )


def _counts(trace: Trace, layer: Layer, requests: pd.DataFrame, syncs: pd.DataFrame) -> dict[str, int]:
    read, size = requests["read"].to_numpy(), requests["bytes"].to_numpy()
    if layer == "vfs":
        result = trace.arrays[RecordKind.IO]["result"]
        failed, empty = int((result < 0).sum()), int((result == 0).sum())
    else:
        blocks = block_records(trace)
        data = np.isin(blocks["op"], (1, 2))
        failed = int((data & (blocks["status"] != 0)).sum())
        empty = int((data & (blocks["status"] == 0) & (blocks["bytes"] == 0)).sum())
    return {
        "reads": int(read.sum()),
        "writes": int((~read).sum()),
        "read_bytes": int(size[read].sum()),
        "written_bytes": int(size[~read].sum()),
        "failed": failed,
        "empty": empty,
        "syncs": len(syncs),
    }


def _mapped(trace: Trace, requests: pd.DataFrame, mmap: Mmap) -> dict[str, int]:
    """Accesses to mapped files: those that count as requests, and those that are left out."""
    io = trace.arrays[RecordKind.IO]
    out = io["result"][left_out(trace, mmap) & (io["result"] > 0)]
    size = requests["bytes"].to_numpy()[requests["source"] == Source.MMAP]
    return {
        "mapped": len(size),
        "mapped_bytes": int(size.sum()),
        "left_out": len(out),
        "left_out_bytes": int(out.astype(np.int64).sum()),
    }


def _queue_time(requests: pd.DataFrame) -> dict[str, Any] | None:
    if "queued_ns" not in requests:
        return None
    queued = requests["queued_ns"].to_numpy()
    queued = queued[queued != NOT_MEASURED_U64]
    return distribution(queued.astype(np.int64)) if len(queued) else None


def _think_per_thread(thinks: pd.DataFrame) -> pd.DataFrame:
    groups = thinks.groupby("thread")["think_ns"]
    frame = groups.agg(gaps="size", think_mean_s="mean", think_p50_s="median").reset_index()
    frame[["think_mean_s", "think_p50_s"]] /= 1e9
    return frame

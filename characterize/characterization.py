# SPDX-License-Identifier: Apache-2.0
"""Turns a trace into everything that design.md section 4 defines, for both layers, and that into one JSON document."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from characterize.concurrency import Concurrency, littles_law
from characterize.definitions import DEFINITIONS
from characterize.document import plain
from characterize.errors import FlextraceError
from characterize.extended import BlockFlagsSummary
from characterize.layer_chunks import ApplicationChunks, BlockChunks
from characterize.layer_summary import Conditions, LayerSummary, Sample
from characterize.layout import HeaderFlag, IoOp, RecordKind
from characterize.links import Links, LinksSummary
from characterize.loss import LOWER_BOUNDS, Totals, estimates_of, exact_of, is_lossy, kept_share, totals_of
from characterize.provenance import provenance_of
from characterize.requests import LAYERS, MMAP_RULES, Layer, Mmap, arrivals_measured, times_measured
from characterize.stream import PIECE_RECORDS, Chunk, Linked, Stream, one_ahead, stream_of
from characterize.trace import Trace, damaged
from characterize.workload import Workload, with_totals

SCHEMA = "flextrace.characterization/1"
THREADS_LISTED = 64
DEPTH_QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9, 0.99)


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
    reuse : dict
        As from `characterize.block_history`.
    sequential_runs : dict
        As `characterize.sequentiality.Sequentiality.runs`.
    inter_arrival_time : dict or None
    file_skew : dict
        As from `characterize.file_skew.FileSkew.shares`.
    files : DataFrame
        Those with the most bytes.
    over_time : DataFrame or None
        As from `characterize.over_time`; None where times are not measurements.
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
    reuse: dict[str, Any]
    sequential_runs: dict[str, Any]
    inter_arrival_time: dict[str, Any] | None
    file_skew: dict[str, Any]
    files: pd.DataFrame
    over_time: pd.DataFrame | None
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
                "miss_ratio_curves": locality.curves,
                "sampled": locality.sampled,
            },
            "reuse": self.reuse,
            "sequentiality": self.sequentiality,
            "sequential_runs": self.sequential_runs,
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
            "inter_arrival_time": self.inter_arrival_time,
            "littles_law": self.littles_law,
            "size": {"histogram": self.size_histogram, "common": self.common_sizes},
            "files": {**self.file_skew, "listed": self.files},
            "over_time": self.over_time,
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


def characterize(
    trace: Trace | Stream, mmap: Mmap = "data", *, sample: Sample | None = None, chunk_records: int = PIECE_RECORDS
) -> Characterization:
    """Reduce a trace to numbers.

    Parameters
    ----------
    trace : Trace or Stream
        Any: also empty, incomplete, with one layer only, or not run yet. A stream (`characterize.stream.open_stream`)
        need not fit into memory; the result is the same.
    mmap : {"data", "all", "none"}
        Which accesses to mapped files count as requests, see `characterize.requests.left_out`.
    sample : Sample or None
        Estimate stack depths from a sample of the blocks; None: they are exact.
    chunk_records : int
        Of a trace in memory: how many records are looked at at once.

    Returns
    -------
    Characterization
    """
    stream = trace if isinstance(trace, Stream) else stream_of(trace, chunk_records)
    facts = stream.facts
    if mmap not in MMAP_RULES:
        raise FlextraceError(f"rule {mmap!r} for mapped files is unknown: choose of {', '.join(MMAP_RULES)}", 2)
    with ThreadPoolExecutor(1) as beside:
        provenance = beside.submit(provenance_of, facts.path)
        summary = TraceSummary(stream, mmap, sample)
        for part in one_ahead(stream.chunks()):
            summary.add(part)
        elapsed_s, elapsed_from = elapsed_of_stream(stream)
        return Characterization(
            layers={layer: _layer(summary, layer, elapsed_s) for layer in LAYERS},
            elapsed_s=elapsed_s,
            trace=_about(facts, elapsed_from),
            lost={kind.name: count for kind, count in facts.header.lost.items()},
            warnings=_warnings(facts, summary.links.orphans),
            links=summary.links.result(facts.paths, summary.application.moved),
            mmap=mmap,
            provenance=provenance.result(),
        )


class TraceSummary:
    """Both layers of a trace, and why the bytes of the lower one moved.

    Parameters
    ----------
    stream : Stream
    mmap : {"data", "all", "none"}
    sample : Sample or None
    """

    def __init__(self, stream: Stream, mmap: Mmap, sample: Sample | None = None) -> None:
        self.stream, self.mmap = stream, mmap
        facts = stream.facts
        self.layers = {
            layer: LayerSummary(
                Conditions(
                    layer=layer,
                    measured=times_measured(facts),
                    arrivals=arrivals_measured(facts),
                    files=facts.arrays[RecordKind.FILE],
                    first_ns=stream.first_ns,
                    last_ns=stream.last_ns,
                    sample=sample,
                )
            )
            for layer in LAYERS
        }
        self.links = LinksSummary(stream.all_stacked)
        self.application, self.block = ApplicationChunks(stream, mmap), BlockChunks(stream)

    def add(self, part: Chunk | Linked) -> None:
        """Count a part of the stream."""
        if isinstance(part, Linked):
            self.links.add(part.blocks, part.data, part.owner)
        else:
            self.layers["vfs"].add(self.application.chunk(part))
            self.layers["block"].add(self.block.chunk(part))

    def totals(self) -> Totals | None:
        """What the recorder's totals say of the application's layer, if records of it were lost."""
        if not is_lossy(self.stream.facts):
            return None
        mapped, out = self.application.mapped, self.application.mapped_out
        return totals_of(self.stream.facts, self.mmap, {op: kept_share(mapped[op], out[op], self.mmap) for op in IoOp})


def _about(facts: Trace, elapsed_from: str | None) -> dict[str, Any]:
    metadata = facts.header.metadata
    return {
        "flags": [flag.name for flag in HeaderFlag if flag in facts.header.flags],
        "measured": facts.measured,
        "durations_measured": times_measured(facts),
        "elapsed_from": elapsed_from,
        "declared": facts.declared,
        "lineage": {name: metadata[name] for name in ("made_by", "parent", "lineage", "imported") if name in metadata},
    }


def _warnings(facts: Trace, orphans: int) -> list[str]:
    warnings = list(facts.warnings)
    if orphans and not facts.header.lost and not any("do not follow" in warning for warning in warnings):
        warnings.append(damaged(facts.path, orphans))
    if facts.header.lost and not any("lost" in warning for warning in warnings):
        lost = ", ".join(f"{count} {kind.name}" for kind, count in facts.header.lost.items())
        warnings.append(f"records were lost while recording ({lost}); uniqueBytes is a lower bound")
    if not facts.measured:
        warnings.append(
            "this trace has not run yet: its times are not measurements, every number made from times is null; "
            "replay it and record that to measure them"
        )
    elif not times_measured(facts):
        warnings.append("this trace has no durations: numbers in flight, response and think times are null")
    return warnings


def elapsed_of(trace: Trace) -> tuple[float, str | None]:
    """Elapsed seconds, and whether they are from the ``header`` or the ``records``; NaN, None where not measured."""
    return elapsed_of_stream(stream_of(trace))


def elapsed_of_stream(stream: Stream) -> tuple[float, str | None]:
    """The same of a stream."""
    header = stream.facts.header
    if not stream.facts.measured:
        return math.nan, None
    if 0 < header.start_monotonic_ns < header.end_monotonic_ns:
        return (header.end_monotonic_ns - header.start_monotonic_ns) / 1e9, "header"
    if stream.last_ns == stream.first_ns:
        return math.nan, None
    return (stream.last_ns - stream.first_ns) / 1e9, "records"


def _layer(trace: TraceSummary, layer: Layer, elapsed_s: float) -> LayerCharacterization:
    summary, facts = trace.layers[layer], trace.stream.facts
    totals = trace.totals() if layer == "vfs" else None
    conditions, measured = summary.conditions, summary.conditions.measured
    sequentiality, load = summary.sequentiality.result(), summary.concurrency.result()
    count, total, thinking = summary.requests, summary.moved_bytes, measured and layer == "vfs"
    process_num = load.in_flight_max
    if not measured:
        process_num = float(facts.declared.get("processNum", math.nan)) if layer == "vfs" else math.nan
    workload = with_totals(
        Workload(
            unique_bytes=float(summary.unique_bytes()),
            seq_frac=sequentiality.shares["seqFrac"],
            read_frac=summary.counts["reads"] / count if count else math.nan,
            size_mean=total / count if count else math.nan,
            process_num=process_num,
        ),
        totals,
    )
    throughput = total / elapsed_s if elapsed_s > 0 else math.nan
    thinks, sizes, files = summary.concurrency.thinks, summary.sizes.result(), summary.files.result()
    in_cycle = load.threads * load.queue_depth_per_thread if thinking else math.nan
    think_mean_s = thinks.mean / 1e9 if thinks.count else 0.0
    lossy = is_lossy(facts, layer)
    return LayerCharacterization(
        parameters=workload,
        declared=not measured and not math.isnan(workload.process_num),
        lower_bounds=LOWER_BOUNDS if lossy else (),
        from_totals=exact_of(totals),
        estimated_from_totals=estimates_of(totals),
        counts=summary.counts,
        locality=summary.locality(),
        reuse=summary.reuse(),
        sequentiality={"seqFrac": workload.seq_frac, **sequentiality.shares},
        sequential_runs=sequentiality.runs,
        concurrency=load,
        time={
            "time_in_io_s": load.time_in_io_s,
            "time_in_io_share": load.time_in_io_s / elapsed_s if elapsed_s > 0 else math.nan,
            "time_in_sync_s": summary.responses.time_in_sync_s(),
            "throughput_bytes_per_s": throughput,
            "throughput_in_io_bytes_per_s": total / load.time_in_io_s if load.time_in_io_s > 0 else math.nan,
        },
        response_time=summary.responses.response_time(),
        think_time=thinks.distribution() if thinking else None,
        queue_time=summary.responses.queue_time(),
        inter_arrival_time=summary.responses.inter_arrival(),
        think_per_thread=summary.concurrency.think_per_thread(),
        littles_law=littles_law(workload.size_mean, summary.responses.mean_s(), think_mean_s, in_cycle, throughput),
        size_histogram=sizes.histogram(),
        common_sizes=sizes.common(),
        file_skew=files.shares(),
        files=files.listed(facts.paths if layer == "vfs" else {}),
        over_time=summary.over_time.result() if conditions.arrivals and summary.over_time and count else None,
        extended=_extended(trace, layer),
    )


def _extended(trace: TraceSummary, layer: Layer) -> dict[str, float]:
    summary = trace.layers[layer]
    if layer == "vfs":
        return summary.extended.result()
    if "imported" in trace.stream.facts.header.metadata:
        # A foreign trace does not say.
        return BlockFlagsSummary().result(math.nan)
    return summary.block_flags.result(trace.links.linked_bytes / summary.moved_bytes if summary.requests else math.nan)

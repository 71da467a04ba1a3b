# SPDX-License-Identifier: Apache-2.0
"""Turns what was counted of one layer into everything that is said about it, and that into its part of the document."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pandas as pd

from characterize.concurrency import Concurrency, littles_law
from characterize.counting.time_histogram import time_histogram
from characterize.document import plain
from characterize.extended import BlockFlagsSummary
from characterize.layer_summary import LayerSummary
from characterize.loss import LOWER_BOUNDS, Totals, estimates_of, exact_of, is_lossy
from characterize.trace import Trace
from characterize.workload import Workload, with_totals

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
        seqFrac and the other definitions of `characterize.sequentiality.Sequentiality.shares`.
    concurrency : Concurrency
    time : dict of str to float
        time_in_io_s, time_in_io_share, time_in_sync_s, throughput_bytes_per_s, throughput_in_io_bytes_per_s.
    response_time : dict
        ``read``, ``write``, ``sync``, each as from `LogHistogram.distribution` or None.
    run_delay : dict
        ``read``, ``write``, ``sync``: each ``share`` of these times in which the thread was ready to run but waited for
        a processor, and ``measured_share``, of which share of them that is known; None where of none, as before 1.6.
    think_time, queue_time : dict or None
        As from `LogHistogram.distribution`; think times at the application's layer only.
    computing : dict of str to float, or None
        ``share`` of the think times for which the thread had a processor, and ``measured_share``, of which share of
        them that is known (0: of none, as in traces of before format 1.2 and of other tools); as think times.
    waits : dict of str to float, or None
        ``count`` of the calls that waited for one of another thread, for how long their threads slept then
        (``slept_s``), and for what ``share`` of the think times; None where the trace tells of none, as before 1.3.
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
    inter_arrival_time, inter_sync_time : dict or None
    time_histogram : DataFrame
        As from `time_histogram`: ``read, write, sync`` (response times), ``queue``, ``inter_arrival``,
        ``inter_sync``, ``think``, those of them that were measured.
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
    run_delay: dict[str, Any]
    think_time: dict[str, Any] | None
    computing: dict[str, float] | None
    waits: dict[str, float] | None
    queue_time: dict[str, Any] | None
    think_per_thread: pd.DataFrame
    littles_law: dict[str, float]
    size_histogram: pd.DataFrame
    common_sizes: pd.DataFrame
    extended: dict[str, float]
    reuse: dict[str, Any]
    sequential_runs: dict[str, Any]
    inter_arrival_time: dict[str, Any] | None
    inter_sync_time: dict[str, Any] | None
    time_histogram: pd.DataFrame
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
            "run_delay": self.run_delay,
            "think_time": self.think_time,
            "computing": self.computing,
            "waits": self.waits,
            "queue_time": self.queue_time,
            "inter_arrival_time": self.inter_arrival_time,
            "inter_sync_time": self.inter_sync_time,
            "time_histogram": self.time_histogram,
            "littles_law": self.littles_law,
            "size": {"histogram": self.size_histogram, "common": self.common_sizes},
            "files": {**self.file_skew, "listed": self.files},
            "over_time": self.over_time,
            "extended": self.extended,
        }
        return plain(document)


def layer_of(
    summary: LayerSummary,
    facts: Trace,
    elapsed_s: float,
    totals: Totals | None = None,
    linked_bytes: float = math.nan,
    *,
    declares: bool = False,
) -> LayerCharacterization:
    """Everything about one layer of a trace, or about what some part of it has there.

    Parameters
    ----------
    summary : LayerSummary
    facts : Trace
        The trace without its requests (`characterize.stream.Stream.facts`).
    elapsed_s : float
    totals : Totals or None
        What the recorder counted beside its records, where some of the whole layer's were lost.
    linked_bytes : float
        Block bytes whose operation is known; NaN where that was not counted.
    declares : bool
        Whether what the maker of a trace that has not run declared is of this summary: of one layer, and not of parts.
    """
    conditions = summary.conditions
    layer, measured = conditions.layer, conditions.measured
    sequentiality, load = summary.sequentiality.result(), summary.concurrency.result()
    declared = facts.declared.get("processNum", math.nan) if declares else math.nan
    in_flight_max = load.in_flight_max if measured else float(declared)
    workload = _workload(summary, sequentiality.shares["seqFrac"], in_flight_max, totals)
    time = _time(summary, load.time_in_io_s, elapsed_s)
    thinks, sizes, files = summary.concurrency.thinks, summary.sizes.result(), summary.files.result()
    # Not of threads that nobody knows: the pauses of all of them together are none's.
    thinking = measured and layer == "vfs" and not math.isnan(load.threads)
    in_cycle = load.threads * load.queue_depth_per_thread if thinking else math.nan
    think_mean_s = thinks.mean / 1e9 if thinks.count else 0.0
    mean_s, throughput = summary.responses.mean_s(), time["throughput_bytes_per_s"]
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
        time=time,
        response_time=summary.responses.response_time(),
        run_delay=summary.responses.run_delay(),
        think_time=thinks.distribution() if thinking else None,
        computing=summary.concurrency.computing() if thinking else None,
        waits=summary.concurrency.waits() if thinking else None,
        queue_time=summary.responses.queue_time(),
        inter_arrival_time=summary.responses.inter_arrival(),
        inter_sync_time=summary.responses.inter_sync(),
        time_histogram=time_histogram(summary.responses.histograms() | ({"think": thinks} if thinking else {})),
        think_per_thread=summary.concurrency.think_per_thread(),
        littles_law=littles_law(workload.size_mean, mean_s, think_mean_s, in_cycle, throughput),
        size_histogram=sizes.histogram(),
        common_sizes=sizes.common(),
        file_skew=files.shares(),
        files=files.listed(facts.paths if layer == "vfs" else {}),
        over_time=summary.over_time.result()
        if conditions.arrivals and summary.over_time and summary.requests
        else None,
        extended=_extended(summary, facts, linked_bytes),
    )


def _workload(summary: LayerSummary, seq_frac: float, process_num: float, totals: Totals | None) -> Workload:
    count = summary.requests
    counted = Workload(
        unique_bytes=float(summary.unique_bytes()),
        seq_frac=seq_frac,
        read_frac=summary.counts["reads"] / count if count else math.nan,
        size_mean=summary.moved_bytes / count if count else math.nan,
        process_num=process_num,
    )
    return with_totals(counted, totals)


def _time(summary: LayerSummary, in_io_s: float, elapsed_s: float) -> dict[str, float]:
    moved_bytes = summary.moved_bytes
    # A request of a window may go on behind it.
    within_s = summary.concurrency.time_in_io_until_s(summary.conditions.last_ns + 1)
    return {
        "time_in_io_s": in_io_s,
        "time_in_io_share": within_s / elapsed_s if elapsed_s > 0 else math.nan,
        "time_in_sync_s": summary.responses.time_in_sync_s(),
        "throughput_bytes_per_s": moved_bytes / elapsed_s if elapsed_s > 0 else math.nan,
        "throughput_in_io_bytes_per_s": moved_bytes / in_io_s if in_io_s > 0 else math.nan,
    }


def _extended(summary: LayerSummary, facts: Trace, linked_bytes: float) -> dict[str, float]:
    metadata = facts.header.metadata
    # Some foreign formats do not say, and of none is known which operations block requests belong to.
    flags_known = "imported" not in metadata or metadata.get("flags") == "known"
    if summary.conditions.layer == "vfs":
        found = summary.extended.result()
        return found if flags_known else found | dict.fromkeys(("syncWriteFrac", "directFrac"), math.nan)
    linked = linked_bytes / summary.moved_bytes if summary.requests and "imported" not in metadata else math.nan
    return (summary.block_flags if flags_known else BlockFlagsSummary()).result(linked)

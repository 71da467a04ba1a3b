# SPDX-License-Identifier: Apache-2.0
"""Turns one run of a comparison, original or replay, into its numbers and distributions, chunk by chunk."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from characterize.concurrency import ConcurrencySummary
from characterize.counting.in_flight_time import InFlightTime
from characterize.counting.log_histogram import LogHistogram
from characterize.extended import ExtendedSummary
from characterize.layer_chunks import ApplicationChunks
from characterize.layout import BlockDataClass, BlockFlag, RecordKind
from characterize.links import pieces_of
from characterize.references import BlockNumbers, Columns, References
from characterize.requests import Layer, times_measured
from characterize.response_time import times_by_kind
from characterize.run_delay import RunDelays
from characterize.sequentiality import SequentialitySummary
from characterize.stream import Linked, Stream
from characterize.touched import FreshBytes, UniqueBytes
from characterize.workload import Workload

KINDS = ("read", "write", "sync", "think")
"""Times whose distributions are compared."""


@dataclass(frozen=True)
class Side:
    """One run.

    Attributes
    ----------
    numbers : dict
        ``parameters`` (the five, of the records that are there), ``requests``, ``operations``, ``threads``,
        ``elapsed_s`` (from the first operation to the last), ``requests_per_s``, ``bytes_per_s``, ``in_flight`` (mean,
        max, shares of the time in I/O), ``response_time``, ``run_delay`` in it, ``think_time``, ``computing`` and
        ``waits`` (in think times), ``page_cache``, ``block``; None or NaN where one was not measured.
    times : dict of str to LogHistogram
        By `KINDS`, ns; empty where times are not measurements.
    """

    numbers: dict[str, Any]
    times: dict[str, LogHistogram]


def side_of(run: Stream) -> Side:
    """The numbers of one run, as from `replayer.checking.replay_recording.run_part` and `replay_part`."""
    application, requests, block = ApplicationChunks(run, "all"), _ApplicationRequests(run), _BlockTraffic(run)
    operations = 0
    for part in run.chunks():
        if isinstance(part, Linked):
            block.add(part)
            continue
        operations += sum(len(part.arrays[kind]) for kind in (RecordKind.IO, RecordKind.FILEOP))
        chunk = application.chunk(part)
        requests.add(chunk.requests, chunk.syncs, chunk.waits)
    return Side(requests.numbers(run, operations) | {"block": block.result(run)}, requests.times)


class LayerRequests:
    """Requests and syncs of one layer, and what both layers have numbers for.

    Attributes
    ----------
    times : dict of str to LogHistogram
        As `Side.times`.
    """

    def __init__(self, run: Stream, layer: Layer) -> None:
        self.measured = times_measured(run.facts)
        self.times = {kind: LogHistogram() for kind in KINDS}
        self.counts = dict.fromkeys(("reads", "writes", "read_bytes", "written_bytes", "syncs"), 0)
        # Below the page cache a thread is at best who submitted a request, so that its pauses mean nothing.
        self.load = ConcurrencySummary(self.measured, thinking=self.measured and layer == "vfs")
        self.in_flight = InFlightTime()
        self.sequentiality = SequentialitySummary(layer)
        self.blocks, self.unique = BlockNumbers(), UniqueBytes()

    def add(self, requests: Columns, syncs: Columns, waits: Columns) -> None:
        """Count a chunk."""
        size, read = requests["bytes"], requests["read"]
        for name, count in (
            ("reads", read.sum()),
            ("writes", (~read).sum()),
            ("read_bytes", size[read].sum()),
            ("written_bytes", size[~read].sum()),
            ("syncs", len(syncs["start_ns"])),
        ):
            self.counts[name] += int(count)
        self.load.add(requests, waits)
        self.sequentiality.add(requests)
        for references in self.blocks.references(requests):
            self.refer(requests, references)
        if self.measured:
            for name, times in times_by_kind(requests, syncs).items():
                self.times[name].add(times)
            self.in_flight.add(requests)

    def refer(self, requests: Columns, references: References) -> None:
        """Count which blocks some of the requests are of."""
        self.unique.add(requests, references)

    def parameters(self, run: Stream, in_flight_max: float) -> Workload:
        """The five."""
        counts = self.counts
        count = counts["reads"] + counts["writes"]
        return Workload(
            unique_bytes=float(self.unique.result()),
            seq_frac=self.sequentiality.result().shares["seqFrac"],
            read_frac=counts["reads"] / count if count else math.nan,
            size_mean=(counts["read_bytes"] + counts["written_bytes"]) / count if count else math.nan,
            process_num=in_flight_max if self.measured else float(run.facts.declared.get("processNum", math.nan)),
        )

    def numbers(self, run: Stream, operations: int) -> dict[str, Any]:
        """All but the block traffic; None for what the other layer has."""
        counts, load = self.counts, self.load.result()
        header = run.facts.header
        lasted_ns = header.end_monotonic_ns - header.start_monotonic_ns
        elapsed_s = lasted_ns / 1e9 if run.facts.measured and lasted_ns > 0 else math.nan
        response = {kind: self.times[kind].distribution() for kind in ("read", "write", "sync")}
        return {
            "parameters": self.parameters(run, load.in_flight_max).as_document(),
            "requests": counts,
            "operations": operations,
            "threads": None,
            "elapsed_s": elapsed_s,
            "requests_per_s": (counts["reads"] + counts["writes"]) / elapsed_s,
            "bytes_per_s": (counts["read_bytes"] + counts["written_bytes"]) / elapsed_s,
            "in_flight": {
                "mean": load.in_flight_mean,
                "max": load.in_flight_max,
                "shares": self.in_flight.result(),
            },
            "response_time": response if self.measured else None,
            **dict.fromkeys(("run_delay", "think_time", "computing", "waits", "page_cache")),
        }


class _ApplicationRequests(LayerRequests):
    """Those of the application's layer, and its pauses and page cache."""

    def __init__(self, run: Stream) -> None:
        super().__init__(run, "vfs")
        self.extended = ExtendedSummary(run.facts.arrays[RecordKind.FILE], run.facts.measured)
        self.touched, self.run_delays = FreshBytes(), RunDelays()
        self.times["think"] = self.load.thinks
        self._fresh: list[np.ndarray] = []

    def add(self, requests: Columns, syncs: Columns, waits: Columns) -> None:
        """Count a chunk."""
        self._fresh = [np.zeros(0, np.int64)]
        super().add(requests, syncs, waits)
        self.extended.add({**requests, "fresh": np.concatenate(self._fresh)}, len(syncs["start_ns"]))
        if self.measured:
            self.run_delays.add(requests, syncs)

    def refer(self, requests: Columns, references: References) -> None:
        """Count which blocks some of the requests are of, and what of them is touched for the first time."""
        super().refer(requests, references)
        self._fresh.append(self.touched.add(requests, references))

    def numbers(self, run: Stream, operations: int) -> dict[str, Any]:
        """All but the block layer."""
        extended = self.extended.result()
        return super().numbers(run, operations) | {
            "threads": self.load.result().threads,
            "run_delay": self.run_delays.shares() if self.measured else None,
            "think_time": self.times["think"].distribution() if self.measured else None,
            "computing": self.load.computing() if self.measured else None,
            "waits": self.load.waits() if self.measured else None,
            "page_cache": {
                "hitFrac": extended["cacheHitFrac"],
                "missFrac": extended["missFrac"],
                "coldFrac": extended["coldFrac"],
            },
        }


class _BlockTraffic:
    """Block requests and bytes, without those of programs that were not traced, whole and by the class of their cause.

    A request of which pieces have several classes counts in each of them.
    """

    def __init__(self, run: Stream) -> None:
        self._all_stacked, self._requests = run.all_stacked, 0
        self._whole: dict[str, int] = {}
        self._classes: dict[int, dict[str, int]] = {}

    def add(self, part: Linked) -> None:
        """Count requests and their pieces."""
        self._requests += len(part.blocks)
        apart = ((part.blocks["flags"] & BlockFlag.STACKED) != 0) & (not self._all_stacked)
        pieces = pd.DataFrame(pieces_of(part.blocks, part.data, part.owner, ~apart))
        ours = pieces[pieces["class"] != BlockDataClass.UNTRACED]
        _count(self._whole, ours)
        for kind in ours["class"].unique().tolist():
            _count(self._classes.setdefault(kind, {}), ours[ours["class"] == kind])

    def result(self, run: Stream) -> dict[str, Any] | None:
        """Counts, and the same of ``classes``; None where the layer was not recorded."""
        if not (run.facts.measured and self._requests):
            return None
        classes = {kind.name.lower(): self._classes[kind] for kind in BlockDataClass if kind in self._classes}
        return {**self._whole, "classes": classes}


def _count(counts: dict[str, int], pieces: pd.DataFrame) -> None:
    read = pieces["read"].to_numpy()
    for name, part in (("read", pieces[read]), ("write", pieces[~read])):
        for what, count in (("requests", part["block"].nunique()), ("bytes", part["bytes"].sum())):
            counts[f"{name}_{what}"] = counts.get(f"{name}_{what}", 0) + int(count)

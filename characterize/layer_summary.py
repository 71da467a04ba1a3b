# SPDX-License-Identifier: Apache-2.0
"""Turns the requests of one layer, a chunk at a time, into everything that is said of them: one summary per measure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from characterize.block_history import BlockHistorySummary
from characterize.border import Border
from characterize.concurrency import ConcurrencySummary
from characterize.counting.shards import SAMPLED_LEAST, SampledLocality
from characterize.extended import BlockFlagsSummary, ExtendedSummary
from characterize.file_skew import FileSkewSummary
from characterize.layout import Source
from characterize.locality import Locality, LocalitySummary
from characterize.over_time import OverTimeSummary
from characterize.references import BlockNumbers, Columns
from characterize.requests import Layer
from characterize.response_time import ResponseSummary
from characterize.sequentiality import SequentialitySummary
from characterize.sizes import SizeSummary
from characterize.touched import FreshBytes, UniqueBytes


@dataclass(frozen=True)
class Sample:
    """Of which blocks stack depths are followed: of a share, but not of very few, or of as many as fit in some memory.

    Attributes
    ----------
    rate : float or None
    size_bytes : int or None
        One of the two is not None.
    """

    rate: float | None = None
    size_bytes: int | None = None

    def summary(self, *, follows: bool = False) -> SampledLocality:
        """An empty summary of such a sample."""
        if self.rate is None:
            return SampledLocality(size_bytes=self.size_bytes, follows=follows)
        return SampledLocality(self.rate, blocks_least=SAMPLED_LEAST, follows=follows)


@dataclass(frozen=True)
class Conditions:
    """What has to be known of a trace before its requests are counted.

    Attributes
    ----------
    layer : {"vfs", "block"}
    measured : bool
        Whether starts and durations are measurements.
    arrivals : bool
        Whether starts are.
    files : ndarray
        FILE records.
    first_ns, last_ns : int
        First start and last end.
    sample : Sample or None
        None: stack depths are exact.
    """

    layer: Layer
    measured: bool
    arrivals: bool
    files: np.ndarray
    first_ns: int
    last_ns: int
    sample: Sample | None = None


@dataclass(frozen=True)
class LayerChunk:
    """What one layer did in a while; none of a later chunk starts before any of this one.

    Attributes
    ----------
    requests : dict of str to ndarray
        Columns of `characterize.requests.requests_of`, by their start; layer vfs: those of `characterize.file_sizes`
        too, ``slept_ns`` (`characterize.waits.slept_before`), and ``fresh`` (`characterize.touched`) once the whole
        trace's summary has it; of a part of a trace that is not the first one then also ``number``, of the request in
        the part.
    syncs : dict of str to ndarray
        Columns of `characterize.response_time.sync_columns`, by their start.
    rest : dict of str to ndarray
        Operations that are no requests: ``start_ns, thread, process, file``, ``why`` (0 failed, 1 moved no byte, 2 left
        out as an access to a mapped file), ``bytes``.
    waits : dict of str to ndarray
        Columns of `characterize.waits.wait_columns`, by their start; layer vfs only.
    """

    requests: dict[str, np.ndarray]
    syncs: Columns
    rest: Columns
    waits: Columns


FAILED, EMPTY, LEFT_OUT = 0, 1, 2


class LayerSummary:
    """All measures of one layer of a trace, or of what one process, file, device or window of time has in it.

    Parameters
    ----------
    conditions : Conditions
    whole : bool
        Whether it is that of the whole trace, which also finds out what bytes are touched for the first time.
    follows : bool
        Whether it is of a part of the trace that is not the first one, to be merged into the parts before.
    """

    def __init__(self, conditions: Conditions, *, whole: bool = True, follows: bool = False) -> None:
        self.conditions, self.whole, self._follows = conditions, whole, follows
        layer, measured = conditions.layer, conditions.measured
        self.counts = dict.fromkeys(("reads", "writes", "read_bytes", "written_bytes", "failed", "empty", "syncs"), 0)
        if layer == "vfs":
            self.counts |= dict.fromkeys(("mapped", "mapped_bytes", "left_out", "left_out_bytes"), 0)
        self.sizes = SizeSummary()
        self.sequentiality = SequentialitySummary(layer)
        # Below the page cache a thread is at best who submitted a request, so that its pauses mean nothing.
        self.concurrency = ConcurrencySummary(measured, thinking=measured and layer == "vfs")
        self.responses = ResponseSummary(measured, conditions.arrivals)
        self.files = FileSkewSummary()
        self.extended = ExtendedSummary(conditions.files, conditions.arrivals, follows=follows)
        self.block_flags = BlockFlagsSummary()
        self.over_time = None
        if conditions.arrivals:
            self.over_time = OverTimeSummary(conditions.first_ns, conditions.last_ns, measured)
        self._blocks = BlockNumbers()
        self._unique = UniqueBytes()
        self._touched = FreshBytes(follows=follows) if whole and layer == "vfs" else None
        self._history = BlockHistorySummary(conditions.arrivals, follows=follows)
        self._sampled = conditions.sample.summary(follows=follows) if conditions.sample else None
        self._locality = LocalitySummary(follows=follows)

    def add(self, chunk: LayerChunk) -> None:
        """Count a chunk."""
        requests = chunk.requests
        self._count(chunk)
        if not any(len(columns["start_ns"]) for columns in (requests, chunk.syncs, chunk.waits)):
            return
        self.sizes.add(requests)
        self.sequentiality.add(requests)
        self.concurrency.add(requests, chunk.waits)
        self.files.add(requests)
        self.responses.add(requests, chunk.syncs)
        if self.over_time:
            self.over_time.add(requests)
        if self._sampled:
            self._sampled.add(requests)
        fresh = [np.zeros(0, np.int64)]
        for references in self._blocks.references(requests):
            self._unique.add(requests, references)
            if self._touched:
                fresh.append(self._touched.add(requests, references))
            self._history.add(requests, references)
            if self.over_time:
                self.over_time.add_references(requests, references)
            if not self._sampled:
                self._locality.add(requests, references)
        if self._touched:
            requests["fresh"] = np.concatenate(fresh)
            if self._follows:
                requests["number"] = np.arange(self.requests - len(requests["bytes"]), self.requests)
        if self.conditions.layer == "vfs":
            self.extended.add(requests, len(chunk.syncs["start_ns"]))
        else:
            self.block_flags.add(requests)

    def carry(self, chunk: LayerChunk) -> None:
        """Begin with requests and syncs of the part before that are in flight where it ends."""
        self.concurrency.carry(chunk.requests)
        self.responses.carry(chunk.syncs)

    def merge(self, following: LayerSummary, border: Border | None = None) -> None:
        """Count what `following` counted, which began where this ends.

        `border` : of the application's layer; the summary of the whole trace completes it for those of groups.
        """
        for name, count in following.counts.items():
            self.counts[name] += count
        self.sizes.merge(following.sizes)
        self.sequentiality.merge(following.sequentiality)
        self.concurrency.merge(following.concurrency)
        self.files.merge(following.files)
        self.responses.merge(following.responses)
        self.block_flags.merge(following.block_flags)
        numbers = self._blocks.merge(following._blocks)
        self._unique.merge(following._unique, numbers)
        self._history.merge(following._history, numbers)
        if self.over_time and following.over_time:
            self.over_time.merge(following.over_time, numbers)
        if self._sampled and following._sampled:
            self._sampled.merge(following._sampled)
        else:
            self._locality.merge(following._locality, numbers)
        if border:
            if self._touched and following._touched:
                border.request, border.fresh = self._touched.merge(following._touched, numbers)
            self.extended.follow(following.extended, border)

    def _count(self, chunk: LayerChunk) -> None:
        size, read, rest = chunk.requests["bytes"], chunk.requests["read"], chunk.rest
        counted = {
            "reads": read.sum(),
            "writes": (~read).sum(),
            "read_bytes": size[read].sum(),
            "written_bytes": size[~read].sum(),
            "failed": (rest["why"] == FAILED).sum(),
            "empty": (rest["why"] == EMPTY).sum(),
            "syncs": len(chunk.syncs["start_ns"]),
        }
        if self.conditions.layer == "vfs":
            mapped, out = chunk.requests["source"] == Source.MMAP, rest["why"] == LEFT_OUT
            counted |= {"mapped": mapped.sum(), "mapped_bytes": size[mapped].sum()}
            counted |= {"left_out": out.sum(), "left_out_bytes": rest["bytes"][out].sum()}
        for name, count in counted.items():
            self.counts[name] += int(count)

    @property
    def requests(self) -> int:
        """Reads and writes so far."""
        return self.counts["reads"] + self.counts["writes"]

    @property
    def moved_bytes(self) -> int:
        """Bytes of them."""
        return self.counts["read_bytes"] + self.counts["written_bytes"]

    def unique_bytes(self) -> int:
        """Bytes in the union of the requests so far."""
        return self._unique.result()

    def locality(self) -> Locality:
        """Stack depths of the requests so far, exact or sampled."""
        return self._sampled.result() if self._sampled else self._locality.result()

    def reuse(self) -> dict:
        """How accesses to the same block follow each other, as from `BlockHistorySummary.result`."""
        return self._history.result()

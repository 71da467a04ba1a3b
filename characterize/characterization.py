# SPDX-License-Identifier: Apache-2.0
"""Turns a trace into everything that design.md section 4 defines, for both layers, and that into one JSON document."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from characterize.border import Border
from characterize.definitions import DEFINITIONS
from characterize.document import plain
from characterize.grouping import Grouping, TraceGroups
from characterize.groups import Group
from characterize.layer_characterization import LayerCharacterization, layer_of
from characterize.layer_chunks import ApplicationChunks, BlockChunks
from characterize.layer_summary import Conditions, LayerChunk, LayerSummary, Sample
from characterize.layout import HeaderFlag, IoOp, RecordKind
from characterize.links import Links, LinksSummary
from characterize.loss import Totals, is_lossy, kept_share, totals_of
from characterize.requests import LAYERS, Layer, Mmap, times_measured
from characterize.stream import PIECE_RECORDS, Chunk, Linked, Stream, one_ahead, stream_of
from characterize.trace import Trace
from characterize.trace_files.missing_records import LOWER_BOUND, damaged, what_is_missing
from characterize.trace_files.provenance import provenance_of
from characterize.trace_files.trace_head import TRUNCATED

SCHEMA = "flextrace.characterization/1"
NOT_RUN = (
    "this trace has not run yet: its times are not measurements, every number made from times is null; "
    "replay it and record that to measure them"
)


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
    groups : list of Group
        The same by process, file, device or window, where that was asked for; `characterize.groups.table_of` makes a
        DataFrame of them.
    provenance : dict
    """

    layers: dict[str, LayerCharacterization]
    elapsed_s: float
    trace: dict[str, Any]
    lost: dict[str, int]
    warnings: list[str]
    links: Links
    mmap: Mmap
    groups: list[Group] = field(default_factory=list)
    provenance: dict[str, Any] = field(default_factory=dict)

    @property
    def trustworthy(self) -> bool:
        """Whether no record is missing: lost, not written by a recorder that was killed, or a malformed line."""
        return not self.lost and not {HeaderFlag.LOST.name, HeaderFlag.INCOMPLETE.name} & set(self.trace["flags"])

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
            "groups": [group.as_document() for group in self.groups],
            "definitions": DEFINITIONS,
        }


def characterize(
    trace: Trace | Stream,
    mmap: Mmap = "data",
    *,
    sample: Sample | None = None,
    grouping: Grouping | None = None,
    chunk_records: int = PIECE_RECORDS,
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
    grouping : Grouping or None
        What else to divide the requests by.
    chunk_records : int
        Of a trace in memory: how many records are looked at at once.

    Returns
    -------
    Characterization
    """
    stream = trace if isinstance(trace, Stream) else stream_of(trace, chunk_records)
    facts = stream.facts
    with _provenance_beside(facts.path) as provenance:
        summary = TraceSummary(stream, mmap, sample, grouping)
        for part in one_ahead(stream.chunks()):
            summary.add(part)
        return characterization_of(summary, provenance.result())


@contextmanager
def _provenance_beside(path: Path | None) -> Iterator[Future[dict[str, Any]]]:
    """What `provenance_of` says, on another processor; given up where the block fails, or is interrupted."""
    given_up = threading.Event()
    with ThreadPoolExecutor(1) as beside:
        try:
            yield beside.submit(provenance_of, path, given_up)
        finally:
            given_up.set()


def characterization_of(summary: TraceSummary, provenance: dict[str, Any]) -> Characterization:
    """Everything about a trace all of whose chunks were counted."""
    facts = summary.stream.facts
    elapsed_s, elapsed_from = elapsed_of_stream(summary.stream)
    return Characterization(
        layers={layer: summary.layer(layer, elapsed_s) for layer in LAYERS},
        elapsed_s=elapsed_s,
        trace=_about(facts, elapsed_from),
        lost={kind.name: count for kind, count in facts.header.lost.items()},
        warnings=_warnings(facts, summary.links.orphans),
        links=summary.links.result(facts.paths, summary.application.moved),
        mmap=summary.mmap,
        groups=summary.groups(elapsed_s),
        provenance=provenance,
    )


class TraceSummary:
    """Both layers of a trace, and why the bytes of the lower one moved.

    Parameters
    ----------
    stream : Stream
    mmap : {"data", "all", "none"}
    sample : Sample or None
    grouping : Grouping or None
    in_flight : Chunk or None
        Of a part of a trace that is not the first one, to be merged into the parts before: the records that start
        before it and end after its begin.
    """

    def __init__(
        self,
        stream: Stream,
        mmap: Mmap,
        sample: Sample | None = None,
        grouping: Grouping | None = None,
        in_flight: Chunk | None = None,
    ) -> None:
        self.stream, self.mmap = stream, mmap
        facts = stream.facts
        self.layers = {
            layer: LayerSummary(
                Conditions(
                    layer=layer,
                    measured=times_measured(facts),
                    arrivals=facts.measured,
                    files=facts.arrays[RecordKind.FILE],
                    first_ns=stream.first_ns,
                    last_ns=stream.last_ns,
                    sample=sample,
                ),
                follows=in_flight is not None,
            )
            for layer in LAYERS
        }
        self.links = LinksSummary(stream.all_stacked)
        self.application = ApplicationChunks(stream, mmap, follows=in_flight is not None)
        self.block = BlockChunks(stream)
        flying: dict[Layer, LayerChunk] | None = None
        if in_flight is not None:
            flying = {"vfs": self.application.in_flight(in_flight), "block": self.block.chunk(in_flight)}
            for layer, chunk in flying.items():
                self.layers[layer].carry(chunk)
        self._groups: TraceGroups | None = None
        if grouping:
            conditions = {layer: summary.conditions for layer, summary in self.layers.items()}
            self._groups = TraceGroups(grouping, conditions, stream, mmap, flying)

    def add(self, part: Chunk | Linked) -> None:
        """Count a part of the stream."""
        if isinstance(part, Linked):
            self.links.add(part.blocks, part.data, part.owner)
        else:
            for layer in LAYERS:
                chunk = self.application.chunk(part) if layer == "vfs" else self.block.chunk(part)
                self.layers[layer].add(chunk)
                if self._groups:
                    self._groups.add(layer, chunk)

    def merge(self, following: TraceSummary) -> None:
        """Count what `following` counted: the next part of the trace, in the order of time."""
        borders: dict[Layer, Border | None] = {"vfs": Border(self.application.sizes), "block": None}
        for layer, summary in self.layers.items():
            summary.merge(following.layers[layer], borders[layer])
        if self._groups and following._groups:
            self._groups.merge(following._groups, borders)
        self.application.merge(following.application)
        self.links.merge(following.links)

    def groups(self, elapsed_s: float) -> list[Group]:
        """Everything about the groups."""
        return self._groups.result(self.stream.facts, elapsed_s) if self._groups else []

    def layer(self, layer: Layer, elapsed_s: float) -> LayerCharacterization:
        """Everything about one layer."""
        totals, linked = self.totals() if layer == "vfs" else None, self.links.linked_bytes
        # A trace that has not run has requests of one layer, which its maker made it of.
        of_blocks = self.layers["block"].requests and not self.layers["vfs"].requests
        declares = layer == ("block" if of_blocks else "vfs")
        return layer_of(self.layers[layer], self.stream.facts, elapsed_s, totals, linked, declares=declares)

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
    told = any(LOWER_BOUND in warning or TRUNCATED in warning for warning in warnings)
    if not told and (facts.header.lost or HeaderFlag.LOST in facts.header.flags):
        warnings.append(what_is_missing(facts.header))
    if not facts.measured:
        warnings.append(NOT_RUN)
    elif not times_measured(facts):
        warnings.append("this trace has no durations: numbers in flight, response and think times are null")
    return warnings


def elapsed_of_stream(stream: Stream) -> tuple[float, str | None]:
    """Elapsed seconds, and whether they are from the ``header`` or the ``records``; NaN, None where not measured."""
    header = stream.facts.header
    if not stream.facts.measured:
        return math.nan, None
    if 0 < header.start_monotonic_ns < header.end_monotonic_ns:
        return (header.end_monotonic_ns - header.start_monotonic_ns) / 1e9, "header"
    if stream.last_ns == stream.first_ns:
        return math.nan, None
    return (stream.last_ns - stream.first_ns) / 1e9, "records"

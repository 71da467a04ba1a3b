# SPDX-License-Identifier: Apache-2.0
"""Turns chunks of records into what the summaries of each layer take: requests, syncs, and what is neither."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from characterize.file_sizes import FileSizes
from characterize.layer_summary import EMPTY, FAILED, LEFT_OUT, LayerChunk
from characterize.layout import BlockFlag, BlockOp, IoOp, RecordKind, Source
from characterize.links import moved_by_programs
from characterize.requests import Layer, Mmap, data_moved, left_out_of, request_columns, rows_at, system_files
from characterize.response_time import sync_columns
from characterize.stream import Chunk, Stream, one_ahead
from characterize.waits import slept_before, wait_columns


class ApplicationChunks:
    """Makes chunks of the application's layer, each with what depends on all before: the appended bytes.

    Attributes
    ----------
    moved : dict of IoOp to int
        Bytes of all IO records so far, by direction.
    mapped, mapped_out : dict of IoOp to int
        Accesses to mapped files that moved data, and those that do not count as requests.
    """

    def __init__(self, stream: Stream, mmap: Mmap, *, follows: bool = False) -> None:
        self._mmap = mmap
        self._system = system_files(stream.facts)
        self._sizes = FileSizes(stream.facts.arrays[RecordKind.FILE], follows=follows)
        self.moved = dict.fromkeys(IoOp, 0)
        self.mapped, self.mapped_out = dict.fromkeys(IoOp, 0), dict.fromkeys(IoOp, 0)

    @property
    def sizes(self) -> FileSizes:
        """The sizes of files now."""
        return self._sizes

    def merge(self, following: ApplicationChunks) -> None:
        """Go on to where `following` ends."""
        for mine, its in (
            (self.moved, following.moved),
            (self.mapped, following.mapped),
            (self.mapped_out, following.mapped_out),
        ):
            for op, count in its.items():
                mine[op] += count
        self._sizes.merge(following._sizes)

    def in_flight(self, records: Chunk) -> LayerChunk:
        """Requests and syncs that began before the first chunk; nothing is counted of them."""
        io, fileops = records.arrays[RecordKind.IO], records.arrays[RecordKind.FILEOP]
        chosen = np.flatnonzero((io["result"] > 0) & ~left_out_of(io, self._mmap, self._system))
        requests = request_columns(rows_at(io, chosen), "vfs")
        nothing = _rest(io[:0], np.zeros(0, np.int64), "file", "result")
        waits = wait_columns(records.arrays[RecordKind.WAKE][:0], io, fileops)
        return LayerChunk(requests, sync_columns(fileops, "vfs"), nothing, waits)

    def chunk(self, records: Chunk) -> LayerChunk:
        """The next chunk."""
        io, fileops, wakes = (records.arrays[kind] for kind in (RecordKind.IO, RecordKind.FILEOP, RecordKind.WAKE))
        out, done = left_out_of(io, self._mmap, self._system), io["result"] > 0
        moved_data = rows_at(io, np.flatnonzero(done & ~out))
        requests = request_columns(moved_data, "vfs") | {"slept_ns": slept_before(moved_data, wakes)}
        requests |= self._sizes.appended(requests, fileops)
        why = np.where(io["result"] < 0, FAILED, np.where(done, LEFT_OUT, EMPTY))
        for op, moved in moved_by_programs(io).items():
            self.moved[op] += moved
            mapped = (io["source"] == Source.MMAP) & done & (io["op"] == op)
            self.mapped[op] += int(mapped.sum())
            self.mapped_out[op] += int((mapped & out).sum())
        rest = ~done | out
        not_requests = _rest(io[rest], why[rest], "file", "result")
        return LayerChunk(requests, sync_columns(fileops, "vfs"), not_requests, wait_columns(wakes, io, fileops))


class BlockChunks:
    """Makes chunks of the block layer."""

    def __init__(self, stream: Stream) -> None:
        self._all_stacked = stream.all_stacked

    def chunk(self, records: Chunk) -> LayerChunk:
        """The next chunk."""
        blocks = records.arrays[RecordKind.BLOCK]
        if not self._all_stacked:
            blocks = blocks[(blocks["flags"] & BlockFlag.STACKED) == 0]
        moved = data_moved(blocks)
        data = (blocks["op"] == BlockOp.READ) | (blocks["op"] == BlockOp.WRITE)
        why = np.where(blocks["status"] != 0, FAILED, EMPTY)
        rest = data & ~moved
        return LayerChunk(
            request_columns(rows_at(blocks, np.flatnonzero(moved)), "block"),
            sync_columns(blocks, "block"),
            _rest(blocks[rest], why[rest], "device", "bytes"),
            wait_columns(records.arrays[RecordKind.WAKE][:0], blocks, blocks),
        )


def layer_chunks(stream: Stream, mmap: Mmap, layers: Sequence[Layer]) -> Iterator[tuple[Layer, LayerChunk]]:
    """What some layers did: one pass over a trace, or over a part of it."""
    application, block = ApplicationChunks(stream, mmap), BlockChunks(stream)
    for part in one_ahead(stream.chunks()):
        if isinstance(part, Chunk):
            for layer in layers:
                yield layer, application.chunk(part) if layer == "vfs" else block.chunk(part)


def _rest(array: np.ndarray, why: np.ndarray, file: str, size: str) -> dict[str, np.ndarray]:
    columns = {name: array[name].astype(np.int64) for name in ("start_ns", "thread", "process")}
    return {**columns, "file": array[file].astype(np.int64), "why": why, "bytes": array[size].astype(np.int64)}

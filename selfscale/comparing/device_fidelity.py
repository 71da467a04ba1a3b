# SPDX-License-Identifier: Apache-2.0
"""Turns a trace and the recording of its replay onto a block device into one document: block requests of both.

The same document as that of a replay in files (`selfscale.comparing.fidelity`), with the numbers of the block layer.
What a block layer has none of is null on both sides, and named (``not_applicable``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from characterize.counting.log_histogram import LogHistogram
from characterize.document import plain
from characterize.layer_chunks import BlockChunks
from characterize.layout import BlockOp, RecordKind
from characterize.stream import Chunk, Stream
from replayer.checking.device_recording import original_requests, replay_requests, without_writes
from replayer.checking.order_check import check_order
from replayer.checking.replay_recording import replay_part
from selfscale.comparing.fidelity import compared, distance_of, document_of
from selfscale.comparing.fidelity_side import LayerRequests, Side

NOT_APPLICABLE = {
    "page_cache": "page-cache hits",
    "threads": "threads",
    "think_time": "think times",
    "computing": "computing in them",
    "waits": "waiting for other threads",
    "run_delay": "waiting for a processor",
}
"""What the block layer has nothing of: keys of `Side.numbers`, which are null, and what they are."""

DIRECTIONS = ("read", "write")


def device_fidelity_of(
    original: Stream, placed: Stream, recording: Stream, replay: Mapping[str, Any]
) -> dict[str, Any]:
    """How a replay of block requests compares with them.

    Parameters
    ----------
    original : Stream
        The trace: recorded, altered or imported.
    placed : Stream
        What was made of it for the device (`replayer.devices.device_trace.make_device_trace`, layer block).
    recording : Stream
        Of the replay, made as `replayer.running.recorder.recorder_command` says.
    replay : mapping
        Document ``flextrace.replay/1`` of the same replay.

    Returns
    -------
    dict
        The document ``flextrace.fidelity/1``, as from `selfscale.comparing.fidelity.fidelity_of`, and ``layer``: block,
        ``source`` and ``device``, ``not_applicable``, ``distance`` by ``read_size, write_size`` besides, ``sizes`` of
        both sides, and ``requests_by_kind``: how many of both.
    """
    source, device = placed.facts.header.metadata["device_trace"]["source"], replay["device"]
    writes = bool(device["write"])
    run = original_requests(original, source, writes=writes), replay_requests(recording, Path(device["path"]))
    (first, first_sizes, first_kinds), (second, second_sizes, second_kinds) = (_counted(one) for one in run)
    comparison = compared(first, second)
    for way in DIRECTIONS:
        comparison["distance"][f"{way}_size"] = distance_of(first_sizes[way], second_sizes[way])
    repeated = placed if writes else without_writes(placed)
    order = check_order(repeated, replay_part(recording), replay["order"])
    document = document_of(comparison, order, (original.facts, recording.facts), replay)
    if not writes:
        document["notes"].append("without --write the device was only read: writes of the original are left out")
    kinds = {
        kind.name.lower(): {"original": first_kinds[kind], "replay": second_kinds[kind]}
        for kind in BlockOp
        if first_kinds[kind] or second_kinds[kind]
    }
    about = {"layer": "block", "source": source, "device": device["path"]}
    return document | plain(about | {"not_applicable": NOT_APPLICABLE, "requests_by_kind": kinds})


def _counted(run: Stream) -> tuple[Side, dict[str, LogHistogram], Counter[int]]:
    """The numbers of one run, the sizes of its requests by direction, and how many there are of each kind."""
    chunks, requests = BlockChunks(run), LayerRequests(run, "block")
    sizes, kinds = {way: LogHistogram() for way in DIRECTIONS}, Counter[int]()
    for part in run.chunks():
        if not isinstance(part, Chunk):
            continue
        every = part.arrays[RecordKind.BLOCK]
        kinds.update(
            dict(zip(*(column.tolist() for column in np.unique(every["op"], return_counts=True)), strict=True))
        )
        chunk = chunks.chunk(part)
        requests.add(chunk.requests, chunk.syncs, chunk.waits)
        read = chunk.requests["read"]
        sizes["read"].add(chunk.requests["bytes"][read])
        sizes["write"].add(chunk.requests["bytes"][~read])
    numbers = requests.numbers(run, kinds.total())
    told = {way: _size(histogram) for way, histogram in sizes.items()}
    return Side(numbers | {"block": _traffic(numbers["requests"]), "sizes": told}, requests.times), sizes, kinds


def _size(sizes: LogHistogram) -> dict[str, float] | None:
    if not sizes.count:
        return None
    return {"mean_bytes": sizes.mean, **{f"p{percent}_bytes": sizes.quantile(percent / 100) for percent in (50, 99)}}


def _traffic(counts: Mapping[str, int]) -> dict[str, Any]:
    """As block traffic of a replay in files, which has classes by cause."""
    return {
        "read_requests": counts["reads"],
        "read_bytes": counts["read_bytes"],
        "write_requests": counts["writes"],
        "write_bytes": counts["written_bytes"],
        "classes": {},
    }

# SPDX-License-Identifier: Apache-2.0
"""Turns reads into writes or writes into reads until readFrac is met: whole runs, evenly from all kinds of runs.

Offsets, sizes, order and threads stay, so uniqueBytes, seqFrac, sizeMean and processNum are held exactly.
"""

from __future__ import annotations

import numpy as np

from characterize.layout import IoFlag, IoOp
from replayer.flexible.draft import Draft

# A run is divided only where otherwise the target were missed by more than this share of the requests.
WHOLE_RUNS_SHARE = 0.001


def change_read_frac(draft: Draft, target: float, generator: np.random.Generator) -> None:
    """Flip runs until `target` is met within one request in a thousand.

    Runs on files that exist before the trace go first, since data that is read has to be there. Among them every
    stratum of (thread, size, length) gives the same share (systematic sampling along the sorted strata).
    """
    reads = draft.reads()
    missing = round(target * len(reads)) - int(reads.sum())
    if not missing:
        return
    to_read = missing > 0
    order, run = draft.runs(one_direction=True)
    candidates = reads[order] != to_read
    first = np.flatnonzero(np.diff(run, prepend=-1))
    length = np.diff(np.append(first, len(run)))
    runs = np.flatnonzero(candidates[first])

    requests = draft.io[draft.requests][order[first[runs]]]
    # Data of a file with several lives cannot be laid out; one that the trace creates should not have to be.
    rank = np.isin(requests["file"], draft.created()).astype(int) + 2 * np.isin(requests["file"], draft.reborn())
    if not to_read:
        rank[:] = 0
    size_class = np.log2(requests["result"]).astype(int)
    length_class = np.log2(length[runs]).astype(int)
    shuffled = generator.random(len(runs))
    needed = abs(missing)
    flipped: list[np.ndarray] = []
    for level in np.unique(rank):
        here = np.flatnonzero(rank == level)
        here = here[np.lexsort((shuffled[here], length_class[here], size_class[here], requests["thread"][here]))]
        lengths = length[runs[here]]
        chosen = _sample(lengths, min(needed, int(lengths.sum())), len(reads))
        for index in np.flatnonzero(chosen):
            begin = first[runs[here[index]]]
            flipped.append(order[begin : begin + chosen[index]])
        needed -= int(chosen.sum())
        if needed <= 0:
            break
    _flip(draft, np.concatenate(flipped), to_read)
    draft.note("readFrac", flipped_requests=abs(missing) - needed, flipped_runs=len(flipped))


def _sample(lengths: np.ndarray, needed: int, requests: int) -> np.ndarray:
    """How many requests to take from the start of every run: all or none but for one run, in sum `needed`."""
    rate = needed / lengths.sum()
    chosen = np.zeros(len(lengths), np.int64)
    debt = 0.0
    for index, length in enumerate(lengths.tolist()):
        debt += rate * length
        if debt >= length / 2:
            chosen[index] = length
            debt -= length
    rest = needed - int(chosen.sum())
    # Long runs leave a rest: add (or take back) runs that fit, then divide one.
    for index in np.argsort(-lengths, kind="stable").tolist():
        length = int(lengths[index])
        if 0 < length <= rest and not chosen[index]:
            chosen[index] = length
            rest -= length
        elif 0 < length <= -rest and chosen[index]:
            chosen[index] = 0
            rest += length
    if abs(rest) > WHOLE_RUNS_SHARE * requests or not chosen.any():
        for index in np.argsort(-lengths, kind="stable").tolist():
            room = int(lengths[index] - chosen[index]) if rest > 0 else int(chosen[index])
            step = min(room, abs(rest)) * (1 if rest > 0 else -1)
            chosen[index] += step
            rest -= step
    return chosen


def _flip(draft: Draft, numbers: np.ndarray, to_read: bool) -> None:
    indices = draft.requests[numbers]
    draft.io["op"][indices] = IoOp.READ if to_read else IoOp.WRITE
    # What was asked for and not there (a read at the end of its file) must not extend the file as a write.
    draft.io["asked_bytes"][indices] = draft.io["result"][indices]
    if to_read:
        draft.io["flags"][indices] &= ~np.uint32(IoFlag.APPEND | IoFlag.CTIME_QUERIED)

# SPDX-License-Identifier: Apache-2.0
"""Turns a trace and the recording of its replay into pairs: operations of the trace, and what repeated each of them.

The sequences differ where the engine skips an operation, and where it opens or closes a file for itself: an open or
close that does not stand between the same operations as in the trace is taken for that. A thread whose other
operations are found in the order of the trace is paired so (`replayer.checking.embedding`), and where it cannot be told
which of like opens or closes were done, they are not paired but counted; of any other thread the k-th operation of
every kind, place and size is paired with the k-th such one, so that what came in another order shows.

Both are read chunk by chunk. An operation waits until its pair has been read, but for no more than `WAITING_OPERATIONS`
others: then it is given up, and counts as not repeated, or as added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from characterize.layout import RECORD_DTYPE, RecordKind
from characterize.stream import TIMED, Arrays, Chunk, Stream
from replayer.checking.embedding import AMBIGUOUS, END, NOT_FOUND, ThreadOperations, embed
from replayer.checking.operation_form import FORM, DoneOperations, WantedOperations, nameless_of

WAITING_OPERATIONS = 1 << 21
"""As many as the engine lets overtake each other at most where it keeps an order of threads (docs/decisions/0009)."""

HELD_OPERATIONS = 1 << 16
"""Opens and closes behind which a thread pauses, or goes on with such, are paired once so many others were read."""

END_OF_TIME = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Pairs:
    """Some operations of a trace beside those of the recording that repeated them.

    Attributes
    ----------
    operations : DataFrame
        Of the trace, as from `replayer.checking.operation_form.operations_of`, ``cause`` (`WantedOperations`), and
        ``replay_start_ns``, ``replay_end_ns``.
    settled_ns : int
        No operation of a pair to come starts before this.
    """

    operations: pd.DataFrame
    settled_ns: int


class _Reader:
    """Operations of one stream that wait for their pairs, by thread in the order of the starts.

    Attributes
    ----------
    waiting : DataFrame
        As the form makes it, and ``sequence``: the number of each in the order of the starts.
    reached_ns : int
        No operation that has not been read starts before this.
    """

    def __init__(self, stream: Stream, form: Callable[[Arrays], pd.DataFrame]) -> None:
        self._parts = (part for part in stream.chunks() if isinstance(part, Chunk))
        self._form, self._read, self.reached_ns = form, 0, 0
        self._next = next(self._parts, None)
        nothing = form({kind: np.zeros(0, RECORD_DTYPE[kind]) for kind in TIMED})
        self.waiting = nothing.assign(sequence=np.zeros(0, np.int64))

    @property
    def ended(self) -> bool:
        """Whether everything has been read."""
        return self._next is None

    @property
    def reached(self) -> int:
        """No operation that has not been read has a lower number; `END` = there is none."""
        return END if self.ended else self._read

    def read(self) -> None:
        """Let the next chunk wait, if there is one."""
        if self._next is None:
            return
        arrays = self._next.arrays
        self._next = next(self._parts, None)
        started = [arrays[kind]["start_ns"] for kind in (RecordKind.IO, RecordKind.FILEOP)]
        self.reached_ns = max([self.reached_ns, *(int(start[-1]) + 1 for start in started if len(start))])
        operations = self._form(arrays).sort_values("start_ns", kind="stable")
        operations["sequence"] = self._read + np.arange(len(operations))
        self._read += len(operations)
        waiting = pd.concat([self.waiting, operations])
        self.waiting = waiting.sort_values(["thread", "start_ns"], kind="stable", ignore_index=True)

    def keep(self, kept: np.ndarray, limit: int) -> pd.DataFrame:
        """Let only some rows wait on, and of these those with no more than `limit` behind them; returns the others."""
        old = self.waiting["sequence"].to_numpy() < self._read - limit
        given_up = self.waiting[kept & old]
        self.waiting = self.waiting[kept & ~old].reset_index(drop=True)
        return given_up


class Pairing:
    """Finds for the operations of a trace those of its replay's recording that repeated them.

    Parameters
    ----------
    trace : Stream
        What was replayed, once and by an engine that does what a thread did in one thread.
    recording : Stream
        Of the replay, as from `replayer.checking.replay_recording.replay_part`.
    waiting_operations : int
        Beyond so many others an operation waits for its pair no longer.
    held_operations : int
        See `HELD_OPERATIONS`.

    Attributes
    ----------
    compared : int
        Pairs so far.
    ambiguous : int
        Opens and closes of the replay so far that are in the trace, but it is not known which of like ones there.
    added : int
        Data operations of the replay that belong to none of the trace, so far.
    """

    def __init__(
        self,
        trace: Stream,
        recording: Stream,
        waiting_operations: int = WAITING_OPERATIONS,
        held_operations: int = HELD_OPERATIONS,
    ) -> None:
        self._limit, self._held = waiting_operations, held_operations
        self._wanted_form = WantedOperations(trace)
        self._done_form = DoneOperations(recording.facts, nameless_of(trace.facts))
        self._wanted, self._done = _Reader(trace, self._wanted_form), _Reader(recording, self._done_form)
        self._shuffled: set[int] = set()
        self.compared = self.ambiguous = self.added = 0

    @property
    def operations(self) -> int:
        """In the trace, so far."""
        return self._wanted_form.operations

    @property
    def expected(self) -> int:
        """Of these the engine repeats by its rules."""
        return self._wanted_form.expected

    @property
    def shuffled_threads(self) -> int:
        """Threads whose operations were not found in the order of the trace."""
        return len(self._shuffled)

    def __iter__(self) -> Iterator[Pairs]:
        """All pairs, once."""
        wanted, done = self._wanted, self._done
        ended = False
        while not ended:
            if done.ended or (not wanted.ended and len(wanted.waiting) <= len(done.waiting)):
                wanted.read()
            else:
                done.read()
            ended = wanted.ended and done.ended
            operations = self._found()
            self.compared += len(operations)
            # What waits for the end of a replay that has ended waits in vain.
            no_more = ended or (done.ended and not len(done.waiting))
            first = int(wanted.waiting["start_ns"].min()) if len(wanted.waiting) else END_OF_TIME
            yield Pairs(operations, END_OF_TIME if no_more else min(first, wanted.reached_ns))
        self.added += int(done.waiting["data"].sum()) + self._done_form.foreign

    def _found(self) -> pd.DataFrame:
        """Take the pairs out of what waits, and what is left between them."""
        wanted, done = self._wanted.waiting, self._done.waiting
        code = pd.concat([wanted[FORM], done[FORM]]).groupby(FORM, sort=False).ngroup().to_numpy()
        wanted, done = wanted.assign(code=code[: len(wanted)]), done.assign(code=code[len(wanted) :])
        match, wanted_kept, done_kept, shuffled = self._embedded(wanted, done)
        if shuffled:
            again = np.isin(done["thread"], shuffled)
            match[again] = _by_occurrence(wanted[np.isin(wanted["thread"], shuffled)], done[again])
        self.ambiguous += int((match == AMBIGUOUS).sum())
        rows = np.flatnonzero(match >= 0)
        wanted_kept[match[rows]] = done_kept[rows] = False
        self._wanted.keep(wanted_kept, self._limit)
        given_up = self._done.keep(done_kept, self._limit)
        # What the engine does for itself tells nothing of the order.
        self._shuffled.update(given_up.loc[~given_up["own"], "thread"].unique().tolist())
        self.added += int(given_up["data"].sum())
        return (
            wanted.iloc[match[rows]]
            .drop(columns=[*FORM, "own", "sequence", "code"])
            .assign(**{f"replay_{name}": done[name].to_numpy()[rows] for name in ("start_ns", "end_ns")})
        )

    def _embedded(
        self, wanted: pd.DataFrame, done: pd.DataFrame
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[int]]:
        """Pairs of the threads that go on in the order of the trace.

        Returns
        -------
        match : ndarray of int64
            For each row done the row wanted, `NOT_FOUND` or `AMBIGUOUS`.
        wanted_kept, done_kept : ndarray of bool
            Rows that wait on.
        shuffled : list of int
            All other threads.
        """
        threads = np.unique(done["thread"])
        bounds = [
            np.searchsorted(frame["thread"], threads, side) for frame in (wanted, done) for side in ("left", "right")
        ]
        columns = [[frame[name].to_numpy() for name in ("code", "own", "sequence")] for frame in (wanted, done)]
        reached = self._wanted.reached, self._done.reached
        match, kept = np.full(len(done), NOT_FOUND, np.int64), [np.ones(len(frame), bool) for frame in (wanted, done)]
        shuffled = []
        for thread, *ends in zip(threads.tolist(), *(bound.tolist() for bound in bounds), strict=True):
            parts = slice(*ends[:2]), slice(*ends[2:])
            place = match[parts[1]]
            in_order = thread not in self._shuffled
            if in_order:
                first, second = (
                    ThreadOperations(code[part], own[part], sequence[part], end)
                    for part, (code, own, sequence), end in zip(parts, columns, reached, strict=True)
                )
                over, done_over, in_order = embed(first, second, place, self._held)
            if in_order:
                kept[0][parts[0]][:over] = kept[1][parts[1]][:done_over] = False
                place[place >= 0] += parts[0].start
            else:
                place[:] = NOT_FOUND
                shuffled.append(thread)
        self._shuffled.update(shuffled)
        return match, kept[0], kept[1], shuffled


def _by_occurrence(wanted: pd.DataFrame, done: pd.DataFrame) -> np.ndarray:
    """For each operation done, the row of the wanted one that is as often preceded by its like; `NOT_FOUND` = none."""
    keys = ["thread", "code", "occurrence"]
    left, right = (
        frame.assign(occurrence=frame.groupby(["thread", "code"]).cumcount())[keys] for frame in (done, wanted)
    )
    right["place"] = wanted.index
    return left.merge(right, how="left", on=keys)["place"].fillna(NOT_FOUND).to_numpy().astype(np.int64)

# SPDX-License-Identifier: Apache-2.0
"""Turns what a thread was to do and what it did, both in order, into pairs: the second is found in the first.

The engine skips some operations, and does some opens and closes for itself. All others are *anchors*: each is the next
one in the trace that is like it. Opens and closes between two anchors are looked for between the same ones there; one
that is not found is the engine's own. Where like ones stand there of which some were skipped, several ways to find what
was done may keep the order. Only pairs that all of these ways have are made, and the others are `AMBIGUOUS`.

So what was done after an anchor waits for the next one, but where a thread pauses, ends, or does nothing but open and
close, for no more than a given number of operations of all threads. That they are counted and not the chunks that are
read makes the pairs the same however a trace is cut into chunks.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

END = np.iinfo(np.int64).max
NOT_FOUND, AMBIGUOUS = -1, -2
_UNKNOWN, _ANCHOR, _PAUSE, _LONG = 0, 1, 2, 3


class ThreadOperations(NamedTuple):
    """Operations of one thread in the order of their starts, as far as they have been read.

    Attributes
    ----------
    code : ndarray of int64, shape (n,)
        The same for operations that are alike.
    own : ndarray of bool, shape (n,)
        Opens and closes, which the engine may also do for itself.
    sequence : ndarray of int64, shape (n,)
        Their numbers among the operations of all threads.
    reached : int
        The lowest number of what has not been read; `END` = everything has been.
    """

    code: np.ndarray
    own: np.ndarray
    sequence: np.ndarray
    reached: int


@numba.njit(cache=True)
def embed(wanted: ThreadOperations, done: ThreadOperations, match: np.ndarray, held: int) -> tuple[int, int, bool]:
    """Find what was done in what was wanted, in its order.

    Parameters
    ----------
    wanted, done : ThreadOperations
    match : ndarray of int64, shape (number done,)
        All `NOT_FOUND`; gets for each operation that is over the place of the wanted one, or `AMBIGUOUS`.
    held : int
        Opens and closes wait for what comes behind them for so many operations of all threads.

    Returns
    -------
    wanted_over, done_over : int
        So many are over; the others wait for what has not been read.
    in_order : bool
        Whether the order so far is that of the trace.
    """
    at = row = 0
    while row < len(done.code):
        end, by = _end_of_done(done, row, held)
        if by == _ANCHOR:
            until = at
            while until < len(wanted.code) and wanted.code[until] != done.code[end]:
                until += 1
            if until == len(wanted.code):
                return at, row, wanted.reached != END
        else:
            until = _end_of_wanted(wanted, at, held)
            if by == _UNKNOWN or until < 0:
                return at, row, True
        at, over = _pair(wanted, (at, until), done, (row, end), match, by == _LONG)
        if by == _ANCHOR:
            match[end] = until
            at, row = until + 1, end + 1
        else:
            # What comes behind the last pair may be found in what comes behind it there.
            row = over if over > row else end
    return at, row, True


@numba.njit(cache=True)
def _end_of_done(done: ThreadOperations, row: int, held: int) -> tuple[int, int]:
    """The first row behind opens and closes from a row on, and what ends them."""
    end = row
    while end < len(done.code) and done.own[end]:
        end += 1
        read = end < len(done.code)
        following = done.sequence[end] if read else done.reached
        if following - done.sequence[end - 1] > held:
            return end, _PAUSE
        if read and done.own[end] and following - done.sequence[row] > held:
            return end, _LONG
    return end, _ANCHOR if end < len(done.code) else _UNKNOWN


@numba.njit(cache=True)
def _end_of_wanted(wanted: ThreadOperations, at: int, held: int) -> int:
    """The first place behind opens and closes from a place on; -1 = it has not been read."""
    until = at
    while until < len(wanted.code) and wanted.own[until]:
        until += 1
        following = wanted.sequence[until] if until < len(wanted.code) else wanted.reached
        if following - wanted.sequence[at] > held:
            return until
    return until if until < len(wanted.code) or wanted.reached == END else -1


@numba.njit(cache=True)
def _pair(  # noqa: PLR0917 (a kernel has its state in arguments)
    wanted: ThreadOperations,
    places: tuple[int, int],
    done: ThreadOperations,
    rows: tuple[int, int],
    match: np.ndarray,
    goes_on: bool,
) -> tuple[int, int]:
    """Pair some rows done with some places wanted where only one way to do so keeps the order.

    That is where the first place that is possible is the last one as well. Where the thread `goes_on` with opens and
    closes, the last row that is found is taken for an anchor: in a long row of like ones nothing else would tell.

    Returns the place and the row behind the last ones found.
    """
    place, over = places[0], rows[0]
    for row in range(rows[0], rows[1]):
        found = place
        while found < places[1] and wanted.code[found] != done.code[row]:
            found += 1
        if found < places[1]:
            match[row], place, over = found, found + 1, row + 1
    last = place if goes_on else places[1]
    for row in range(over - 1, rows[0] - 1, -1):
        if match[row] != NOT_FOUND:
            last -= 1
            while wanted.code[last] != done.code[row]:
                last -= 1
            if last != match[row]:
                match[row] = AMBIGUOUS
    return place, over

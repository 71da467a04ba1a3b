# SPDX-License-Identifier: Apache-2.0
"""Turns wished LRU stack depths into places behind any last request of a thread (compiled loops for uniqueBytes).

A request is sequential where the last one of its thread on the same file ended, of whatever run that was. So one that
was sequential stays so on any file that its thread is on, and goes to the one where the next place is as deep as it is
to be, or nearly. What begins a run begins one at its depth; and a few more requests may, where no end is near theirs.
The more files a thread is on, the more depths it has to choose from at any time: what is read by several runs at once
(merged) need not find a file for each of them on which all of the run is as deep.
"""

from __future__ import annotations

import numpy as np
from numba import njit, types
from numba.typed import Dict

from characterize.references import BLOCK_BYTES
from replayer.flexible.depths import (
    NEW,
    Requests,
    Room,
    Streams,
    files_of_places,
    offset_of,
    place_anywhere,
    place_at_depth,
    same_place,
    unused_place,
    use,
)
from replayer.flexible.place_stack import Stack, depth_of, empty_stack


@njit(cache=True)
def place_at_ends(  # noqa: PLR0917
    requests: Requests, room: Room, distinct: int, limit: int, tolerance: float, cuts: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """New offsets and files, and what comes of them.

    Parameters
    ----------
    requests : Requests
    room : Room
    distinct : int
        Blocks that the requests had.
    limit : int
        Blocks that may be used.
    tolerance : float
        How wrong a depth may be, as a part of the stack, for a request to go on where one ended.
    cuts : int
        So many that were sequential may begin anew instead.

    Returns
    -------
    offset : ndarray of int64, shape (n,)
        In bytes, with the first place of the file at 0.
    file : ndarray of int64, shape (n,)
    found : ndarray of int64
        References at each LRU stack depth; the last are first ones.
    sequential : int
        Requests that are.
    """
    count, files = len(requests.low), len(room.base)
    offset, file = np.empty(count, np.int64), np.empty(count, np.int64)
    places = room.base[-1] + room.blocks[-1]
    stack, unused = empty_stack(places), np.arange(places + 1)
    file_of = files_of_places(room)
    now, found, sequential, cut = np.full(distinct, -1, np.int64), np.zeros(places + 1, np.int64), 0, 0
    streams = Streams(Dict.empty(types.int64, types.int64), np.full(count, -1), np.full(count, -1))
    every = Streams(streams.number, np.full(count, -1), streams.end)
    for i in range(count):
        used, blocks = stack.state[1], requests.blocks[i]
        new = requests.depth[i] == NEW or requests.depth[i] > used
        depth = used if new else requests.depth[i]
        fresh = new and used + blocks <= limit
        near = int(tolerance * used) + blocks
        name, begin, off = -1, 0, used + blocks
        if requests.sequential[i]:
            name, begin, off = _nearest_end(requests, room, stack, streams, i, file[requests.before[i]], depth, fresh)
        # As many begin anew so far as is the share of the requests so far.
        if name < 0 or (off > near and cut < cuts * (i + 1) / count):
            place = _beginning(requests, room, stack, unused, streams, every, i, now, file_of, depth, fresh, near)
            if name < 0 or _off(stack, place, place + blocks - 1, depth) < off:
                name, begin = file_of[place], offset_of(requests, room, i, place, file_of[place])
                cut += requests.sequential[i]
                _move_run(requests, streams, i, files, name)
        stream = streams.number[requests.thread[i] * files + name]
        sequential += streams.end[stream] == begin
        streams.end[stream] = begin + requests.size[i]
        file[i], offset[i] = name, begin
        place = room.base[name] + begin // BLOCK_BYTES
        last = room.base[name] + (begin + requests.size[i] - 1) // BLOCK_BYTES
        for step in range(last - place + 1):
            use(stack, unused, found, place + step)
            if step < blocks:
                now[requests.original[i] + step] = place + step
    return offset, file, found, sequential


@njit(cache=True)
def _nearest_end(  # noqa: PLR0917
    requests: Requests, room: Room, stack: Stack, streams: Streams, i: int, own: int, depth: int, fresh: bool
) -> tuple[int, int, int]:
    """File and offset where a request of the thread ended and the depth is nearest, and how far off; -1: nowhere.

    Only what is `fresh` goes to places that nobody used. Of equally near ones it is that on the `own` file.
    """
    files, size = len(room.base), requests.size[i]
    best, begin, least = -1, 0, stack.state[1] + requests.blocks[i]
    for turn in range(files):
        name = (own + turn) % files
        key = requests.thread[i] * files + name
        if key not in streams.number or not (name == requests.file[i] or room.born[name] <= i < room.dies[name]):
            continue
        end = streams.end[streams.number[key]]
        first, last = end // BLOCK_BYTES, (end + size - 1) // BLOCK_BYTES
        if last >= room.blocks[name]:
            continue
        # The block in which the last one ended was used just then.
        first = room.base[name] + min(first + (end % BLOCK_BYTES > 0), last)
        last += room.base[name]
        if not fresh and (stack.slot[first] < 0 or stack.slot[last] < 0):
            continue
        off = _off(stack, first, last, depth)
        if off < least:
            best, begin, least = name, end, off
    return best, begin, least


@njit(cache=True)
def _beginning(  # noqa: PLR0917
    requests: Requests,
    room: Room,
    stack: Stack,
    unused: np.ndarray,
    streams: Streams,
    every: Streams,
    i: int,
    now: np.ndarray,
    file_of: np.ndarray,
    depth: int,
    fresh: bool,
    near: int,
) -> int:
    """A place where no request of the thread ended; if that is near enough, on a file on which it began no other run.

    In `every` file none is under way.
    """
    used, blocks, place = stack.state[1], requests.blocks[i], -1
    if fresh:
        place = unused_place(requests, room, stack, unused, streams, i)
    elif depth < used:
        place = same_place(requests, room, stack, streams, i, now[requests.original[i]], file_of, near / used)
    if place < 0 and used > 0:
        place = place_at_depth(requests, room, stack, streams, i, file_of, depth, False)
        if place < 0 or _off(stack, place, place + blocks - 1, depth) > near:
            other = place_at_depth(requests, room, stack, every, i, file_of, depth, False)
            if place < 0 or (
                other >= 0
                and _off(stack, other, other + blocks - 1, depth) < _off(stack, place, place + blocks - 1, depth)
            ):
                place = other
    return place if place >= 0 else place_anywhere(requests, room, streams, i)


@njit(cache=True)
def _move_run(requests: Requests, streams: Streams, i: int, files: int, name: int) -> None:
    """Let the run be under way on this file, and on no other."""
    first = requests.thread[i] * files
    if first + name not in streams.number:
        streams.number[first + name] = len(streams.number)
    for key in range(first, first + files):
        if key in streams.number and streams.run[streams.number[key]] == requests.run[i]:
            streams.run[streams.number[key]] = -1
    streams.run[streams.number[first + name]] = requests.run[i]


@njit(cache=True)
def _off(stack: Stack, first: int, last: int, depth: int) -> int:
    """How far off a depth the first and the last place of a request are; those that nobody used are below all."""
    return max(abs(depth_of(stack, first) - depth), abs(depth_of(stack, last) - depth))

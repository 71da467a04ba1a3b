# SPDX-License-Identifier: Apache-2.0
"""Turns wished LRU stack depths into places for requests, one after the other (compiled loops for uniqueBytes).

Places are blocks, numbered through all files. What continues a run stays behind it. A run that begins is put where the
block of the wished depth is, on a file on which its thread has no other run under way; a run that is to be new gets
places that nobody used while there is room, and then those that were used the longest ago.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit, types
from numba.typed import Dict

from characterize.counting.lru_stack import COLD, LruStack
from characterize.references import BLOCK_BYTES

NEW = -1
# Neighbours in the stack that are asked for a place: how many, and the first step as a part of the stack.
TURNS, STACK_STEPS, STEP_GROWTH = 96, 512, 1.14
# A place that is wrong by no more than this part of the stack is taken at once, else the best that was looked at.
NEAR = 64
# Where whole runs are to be of one depth, one that is wrong by no more than this part is better than a run in pieces.
WHOLE_NEAR = 4
# Other files that are asked for room where no place is right.
FILES_MAX = 64
# A run is placed where so many of its blocks are in use; in longer ones it may come to the end of what is.
AHEAD_BLOCKS = 256
# The oldest block may be in the middle of what was one request: the place may begin so much before it.
BACK_BLOCKS = 8


class Requests(NamedTuple):
    """In the order of time; int64, shape (n,), numbers of files and threads from 0.

    ``depth`` is wished, in blocks of the new footprint; `NEW` is a place not used before. ``low`` counts blocks from
    the first one of the file, ``inside`` bytes from the begin of the block; ``original`` is the first block that the
    request had, of all files. ``run`` is the number of the last request of its run, ``rest`` the blocks of its run.
    """

    depth: np.ndarray
    original: np.ndarray
    low: np.ndarray
    blocks: np.ndarray
    inside: np.ndarray
    size: np.ndarray
    file: np.ndarray
    thread: np.ndarray
    before: np.ndarray
    sequential: np.ndarray
    run: np.ndarray
    rest: np.ndarray


class Room(NamedTuple):
    """Of every file: first place, number of places, and the requests from which to before which others may come."""

    base: np.ndarray
    blocks: np.ndarray
    born: np.ndarray
    dies: np.ndarray


class Stack(NamedTuple):
    """LRU stack of places: moment of the last use of each, place by moment, live moments (Fenwick tree)."""

    moment: np.ndarray
    owner: np.ndarray
    tree: np.ndarray
    unused: np.ndarray  # of a place the next one that may be unused


class Streams(NamedTuple):
    """Numbers of the threads and files in use together; of each the run under way, and the end of the last request."""

    number: Dict
    run: np.ndarray
    end: np.ndarray


def depths_of(first: np.ndarray, blocks: np.ndarray, distinct: int, chosen: np.ndarray) -> np.ndarray:
    """LRU stack depth of one block of every request, of block `chosen` of it; `NEW` for first references.

    Parameters
    ----------
    first, blocks : ndarray of int64, shape (n,)
        As from `characterize.counting.dense_blocks`.
    distinct : int
    chosen : ndarray of int64, shape (n,)
        From 0 to below `blocks`.
    """
    begin = np.cumsum(blocks) - blocks
    references = np.repeat(first - begin, blocks) + np.arange(blocks.sum())
    depth = LruStack().depths(references.astype(np.int32), distinct)[begin + chosen].astype(np.int64)
    return np.where(depth == COLD, NEW, depth)


@njit(cache=True)
def place_by_depth(  # noqa: PLR0917
    requests: Requests, room: Room, distinct: int, limit: int, tolerance: float, new_first: bool, whole_runs: bool
) -> tuple[np.ndarray, np.ndarray]:
    """New offsets and files.

    Parameters
    ----------
    requests : Requests
    room : Room
    distinct : int
        Blocks that the requests had.
    limit : int
        Blocks that may be used; more are where a run finds no end.
    tolerance : float
        What is used again stays with its data where the depth there is as wished within this part of the stack.
    new_first : bool
        Everything is new until the limit is reached, whatever its depth.
    whole_runs : bool
        What a run comes to later is to be as deep then as what it begins with.

    Returns
    -------
    offset : ndarray of int64, shape (n,)
        In bytes, with the first place of the file at 0.
    file : ndarray of int64, shape (n,)
    """
    count, files = len(requests.low), len(room.base)
    offset, file = np.empty(count, np.int64), np.empty(count, np.int64)
    places = room.base[-1] + room.blocks[-1]
    stack = _empty(places, requests.blocks.sum())
    file_of = np.empty(places, np.int32)
    for name in range(files):
        file_of[room.base[name] : room.base[name] + room.blocks[name]] = name
    now = np.full(distinct, -1, np.int64)
    streams = Streams(Dict.empty(types.int64, types.int64), np.empty(count, np.int64), np.empty(count, np.int64))
    moment = used = 0
    for i in range(count):
        place = -1
        if requests.sequential[i]:
            before = requests.before[i]
            offset[i], file[i] = offset[before] + requests.size[before], file[before]
            place = _continued(requests, room, stack, i, offset[i], file[i], used, limit)
        if place < 0:
            new = requests.depth[i] == NEW or requests.depth[i] > used
            if (new or new_first) and used + requests.blocks[i] <= limit:
                place = _unused(requests, room, stack, streams, i)
            if place < 0 and not new:
                place = _same(requests, room, stack, streams, i, now[requests.original[i]], file_of, used, tolerance)
            if place < 0 and used > 0:
                depth = used if new else requests.depth[i]
                place = _at_depth(requests, room, stack, streams, i, file_of, used, depth, whole_runs)
            if place < 0:
                place = _anywhere(requests, room, streams, i)
            file[i] = file_of[place]
            offset[i] = _offset(requests, room, i, place, file[i])
        key = requests.thread[i] * files + file[i]
        if key not in streams.number:
            streams.number[key] = len(streams.number)
        stream = streams.number[key]
        streams.run[stream], streams.end[stream] = requests.run[i], offset[i] + requests.size[i]
        for step in range(requests.blocks[i]):
            used += _touch(stack, place + step, moment)
            now[requests.original[i] + step] = place + step
            moment += 1
    return offset, file


# ---- places ----


@njit(cache=True)
def _continued(  # noqa: PLR0917
    requests: Requests, room: Room, stack: Stack, i: int, offset: int, file: int, used: int, limit: int
) -> int:
    """The place behind the request before; -1 where the file ends there, or nothing new may be used."""
    block = offset // BLOCK_BYTES
    last = block + requests.blocks[i] - 1
    if last >= room.blocks[file]:
        return -1
    if stack.moment[room.base[file] + last] < 0 and used + requests.blocks[i] > limit:
        return -1
    return room.base[file] + block


@njit(cache=True)
def _unused(requests: Requests, room: Room, stack: Stack, streams: Streams, i: int) -> int:
    """The request's own place if that is new, else the next that is in its file, where it can be with room for it."""
    name, blocks = requests.file[i], requests.blocks[i]
    first, end = room.base[name], room.base[name] + room.blocks[name]
    place, partly = first + requests.low[i] % max(room.blocks[name] - blocks + 1, 1), -1
    for turn in range(TURNS):
        place = next_unused(stack.unused, min(place, end))
        if place + blocks > end:
            place = next_unused(stack.unused, first)
        if _fits(requests, room, streams, i, place, name):
            if stack.moment[place + blocks - 1] < 0:
                return place
            partly = place if partly < 0 else partly
        # Behind the run that ended last it would be sequential: one further leaves a gap.
        place += 1 << turn // 8
    return partly


@njit(cache=True)
def _same(  # noqa: PLR0917
    requests: Requests,
    room: Room,
    stack: Stack,
    streams: Streams,
    i: int,
    place: int,
    file_of: np.ndarray,
    used: int,
    tolerance: float,
) -> int:
    """Where the request's data is now, if its depth is about the wished one."""
    if place < 0 or abs(_depth(stack, place, used) - requests.depth[i]) > tolerance * used:
        return -1
    return place if _fits(requests, room, streams, i, place, file_of[place]) else -1


@njit(cache=True)
def _at_depth(  # noqa: PLR0917
    requests: Requests,
    room: Room,
    stack: Stack,
    streams: Streams,
    i: int,
    file_of: np.ndarray,
    used: int,
    depth: int,
    whole_runs: bool,
) -> int:
    """A place of about a depth, which is looked for nearer and further off."""
    oldest = depth >= used
    away, step = 0.0, max(used / STACK_STEPS, 1.0)
    blocks = requests.blocks[i]
    best, least = -1, used + blocks
    for turn in range(2 * TURNS):
        # First where the whole run has room, then where the request has; each from the depth itself on.
        whole, nth = turn < TURNS, turn % TURNS
        if nth == 0:
            if whole_runs and least <= used / WHOLE_NEAR:
                break
            away = 0.0
        if oldest:
            rank = int(away)
            away += 1.0 if nth < TURNS // 2 else step * STEP_GROWTH ** (nth - TURNS // 2)
        else:
            rank = used - 1 - depth + int(away if nth % 2 else -away)
            away += 0.0 if nth % 2 else step * STEP_GROWTH ** (nth // 2)
        found = stack.owner[_moment_of_rank(stack.tree, min(max(rank, 0), used - 1))]
        name = file_of[found]
        ahead = blocks
        if whole:
            ahead = requests.rest[i] if whole_runs else min(requests.rest[i], AHEAD_BLOCKS)
        for back in range(min(blocks, BACK_BLOCKS)):
            place = found - back
            if place < room.base[name] or place + ahead > room.base[name] + room.blocks[name]:
                continue
            if stack.moment[place] < 0 or stack.moment[place + blocks - 1] < 0 or stack.moment[place + ahead - 1] < 0:
                continue
            off = max(abs(_depth(stack, place, used) - depth), abs(_depth(stack, place + blocks - 1, used) - depth))
            end = place + ahead - 1
            if whole_runs and whole:
                # What was used before it comes above it until the run is there.
                before = ahead - 1 if stack.moment[end] > stack.moment[place] else 0
                off = max(off, abs(_depth(stack, end, used) + before - depth))
            if off < least and _fits(requests, room, streams, i, place, name):
                best, least = place, off
        if least <= used / NEAR + blocks:
            break
    return best


@njit(cache=True)
def _anywhere(requests: Requests, room: Room, streams: Streams, i: int) -> int:
    """The request's old place, or that of another file on which the thread does nothing else."""
    files = len(room.base)
    for turn in range(min(files, FILES_MAX)):
        name = (requests.file[i] + turn) % files
        place = room.base[name] + requests.low[i] % max(room.blocks[name] - requests.blocks[i] + 1, 1)
        if _fits(requests, room, streams, i, place, name):
            return place
    name = requests.file[i]
    return room.base[name] + requests.low[i] % max(room.blocks[name] - requests.blocks[i] + 1, 1)


@njit(cache=True)
def _fits(requests: Requests, room: Room, streams: Streams, i: int, place: int, file: int) -> bool:  # noqa: PLR0917
    """Whether the file stays for the run, has room, and the thread has no other run there, nor one that just ended."""
    if file != requests.file[i] and not room.born[file] <= i <= requests.run[i] < room.dies[file]:
        return False
    if place < room.base[file] or place + requests.blocks[i] > room.base[file] + room.blocks[file]:
        return False
    key = requests.thread[i] * len(room.base) + file
    if key not in streams.number:
        return True
    stream = streams.number[key]
    if streams.run[stream] > i and streams.run[stream] != requests.run[i]:
        return False
    return streams.end[stream] != _offset(requests, room, i, place, file)


@njit(cache=True)
def _offset(requests: Requests, room: Room, i: int, place: int, file: int) -> int:
    return (place - room.base[file]) * BLOCK_BYTES + requests.inside[i]


# ---- the stack ----


@njit(cache=True)
def _empty(places: int, moments: int) -> Stack:
    return Stack(
        np.full(places, -1, np.int64),
        np.empty(moments, np.int64),
        np.zeros(moments + 1, np.int64),
        np.arange(places + 1),
    )


@njit(cache=True)
def _add(tree: np.ndarray, moment: int, amount: int) -> None:
    node = moment + 1
    while node < len(tree):
        tree[node] += amount
        node += node & -node


@njit(cache=True)
def _depth(stack: Stack, place: int, used: int) -> int:
    """Distinct places that were used after the last use of this one."""
    older, node = 0, stack.moment[place] + 1
    while node > 0:
        older += stack.tree[node]
        node -= node & -node
    return used - older


@njit(cache=True)
def _moment_of_rank(tree: np.ndarray, rank: int) -> int:
    """The moment of last use before which those of `rank` other places are."""
    node, step = 0, 1
    while step * 2 < len(tree):
        step *= 2
    while step:
        if node + step < len(tree) and tree[node + step] <= rank:
            node += step
            rank -= tree[node]
        step //= 2
    return node


@njit(cache=True)
def _touch(stack: Stack, place: int, moment: int) -> int:
    """Make a place the latest one; 1 if it was never used."""
    new = stack.moment[place] < 0
    if new:
        stack.unused[place] = place + 1
    else:
        _add(stack.tree, stack.moment[place], -1)
    stack.moment[place], stack.owner[moment] = moment, place
    _add(stack.tree, moment, 1)
    return 1 if new else 0


@njit(cache=True)
def next_unused(unused: np.ndarray, place: int) -> int:
    """The first place from `place` on that was never used (union-find)."""
    root = place
    while unused[root] != root:
        root = unused[root]
    while unused[place] != root and place != root:
        unused[place], place = root, unused[place]
    return root

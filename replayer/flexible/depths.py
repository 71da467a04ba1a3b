# SPDX-License-Identifier: Apache-2.0
"""Turns wished LRU stack depths into places for requests, one after the other (compiled loops for uniqueBytes).

Places are blocks, numbered through all files. What continues a run stays behind it. A run that begins is put where the
block of the wished depth is, on a file on which its thread has no other run under way; a run that is to be new gets
places that nobody used while there is room, and then those that were used the longest ago. Where requests differ in
size, these are whole only if places are used around in a ring; and as the next one would be sequential there, in one of
several rings.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit, types
from numba.typed import Dict

from characterize.counting.lru_stack import COLD, LruStack
from characterize.references import BLOCK_BYTES
from replayer.flexible.place_stack import Stack, at_depth, depth_of, empty_stack, next_unused, touch

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
    request had, of all files. ``run`` is the number of the last request of its run, ``rest`` the blocks to the end of
    its run, or to where that is cut.
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
    """Of every file: first place, number of places, and the requests from which to before which others may come.

    New places are taken from so many ``rings`` of a file in turn (0: those that requests had), each of which goes on
    where it was left.
    """

    base: np.ndarray
    blocks: np.ndarray
    born: np.ndarray
    dies: np.ndarray
    rings: int


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
) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """New offsets and files, and what comes of them.

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
    now, found, sequential = np.full(distinct, -1, np.int64), np.zeros(places + 1, np.int64), 0
    streams = Streams(Dict.empty(types.int64, types.int64), np.empty(count, np.int64), np.full(count, -1))
    for i in range(count):
        place, used = -1, stack.state[1]
        if requests.sequential[i]:
            before = requests.before[i]
            offset[i], file[i] = offset[before] + requests.size[before], file[before]
            place = _continued(requests, room, stack, i, offset[i], file[i], limit)
        if place < 0:
            new = requests.depth[i] == NEW or requests.depth[i] > used
            if (new or new_first) and used + requests.blocks[i] <= limit:
                if room.rings:
                    place = _in_rings(requests, room, stack, unused, streams, i)
                else:
                    place = unused_place(requests, room, stack, unused, streams, i)
            if place < 0 and not new:
                place = same_place(requests, room, stack, streams, i, now[requests.original[i]], file_of, tolerance)
            if place < 0 and new and room.rings:
                place = _oldest_of_rings(requests, room, stack, streams, i, file_of)
            if place < 0 and used > 0:
                depth = used if new else requests.depth[i]
                place = place_at_depth(requests, room, stack, streams, i, file_of, depth, whole_runs)
            if place < 0:
                place = place_anywhere(requests, room, streams, i)
            file[i] = file_of[place]
            offset[i] = offset_of(requests, room, i, place, file[i])
        key = requests.thread[i] * files + file[i]
        if key not in streams.number:
            streams.number[key] = len(streams.number)
        stream = streams.number[key]
        sequential += streams.end[stream] == offset[i]
        streams.run[stream], streams.end[stream] = requests.run[i], offset[i] + requests.size[i]
        for step in range(requests.blocks[i]):
            use(stack, unused, found, place + step)
            now[requests.original[i] + step] = place + step
    return offset, file, found, sequential


@njit(cache=True)
def files_of_places(room: Room) -> np.ndarray:
    """The file of every place."""
    file_of = np.empty(room.base[-1] + room.blocks[-1], np.int32)
    for name in range(len(room.base)):
        file_of[room.base[name] : room.base[name] + room.blocks[name]] = name
    return file_of


@njit(cache=True)
def use(stack: Stack, unused: np.ndarray, found: np.ndarray, place: int) -> None:
    """Touch a place, and count how deep it was, or that it was new."""
    if stack.slot[place] < 0:
        unused[place] = place + 1
        found[-1] += 1
    else:
        found[depth_of(stack, place)] += 1
    touch(stack, place)


# ---- places ----


@njit(cache=True)
def _continued(  # noqa: PLR0917
    requests: Requests, room: Room, stack: Stack, i: int, offset: int, file: int, limit: int
) -> int:
    """The place behind the request before; -1 where the file ends there, or nothing new may be used."""
    block = offset // BLOCK_BYTES
    last = block + requests.blocks[i] - 1
    if last >= room.blocks[file]:
        return -1
    if stack.slot[room.base[file] + last] < 0 and stack.state[1] + requests.blocks[i] > limit:
        return -1
    return room.base[file] + block


@njit(cache=True)
def unused_place(  # noqa: PLR0917
    requests: Requests, room: Room, stack: Stack, unused: np.ndarray, streams: Streams, i: int
) -> int:
    """The request's own place if that is new, else the next that is in its file, where it can be with room for it."""
    name, blocks = requests.file[i], requests.blocks[i]
    first, end = room.base[name], room.base[name] + room.blocks[name]
    place, partly = first + requests.low[i] % max(room.blocks[name] - blocks + 1, 1), -1
    for turn in range(TURNS):
        place = next_unused(unused, min(place, end))
        if place + blocks > end:
            place = next_unused(unused, first)
        if fits(requests, room, streams, i, place, name):
            if stack.slot[place + blocks - 1] < 0:
                return place
            partly = place if partly < 0 else partly
        # Behind the run that ended last it would be sequential: one further leaves a gap.
        place += 1 << turn // 8
    return partly


@njit(cache=True)
def _in_rings(requests: Requests, room: Room, stack: Stack, unused: np.ndarray, streams: Streams, i: int) -> int:  # noqa: PLR0917
    """The next places of one of the rings of the first file that has some."""
    for name in range(len(room.base)):
        for turn in range(room.rings):
            begin = room.base[name] + (i + turn) % room.rings * (room.blocks[name] // room.rings)
            place = next_unused(unused, begin)
            if fits(requests, room, streams, i, place, name) and stack.slot[place + requests.blocks[i] - 1] < 0:
                return place
    return -1


@njit(cache=True)
def _oldest_of_rings(  # noqa: PLR0917
    requests: Requests, room: Room, stack: Stack, streams: Streams, i: int, file_of: np.ndarray
) -> int:
    """Where a ring goes on: what was used the longest ago, but for what is in front of it; -1 if that is not old."""
    used, blocks = stack.state[1], requests.blocks[i]
    for away in range(min(TURNS * min(blocks, BACK_BLOCKS), used)):
        place = at_depth(stack, used - 1 - away)
        end = place + min(requests.rest[i], max(blocks, AHEAD_BLOCKS))
        name = file_of[place]
        if place > room.base[name] and 0 <= stack.slot[place - 1] < stack.slot[place]:
            continue
        if end > room.base[name] + room.blocks[name] or stack.slot[end - 1] < 0:
            continue
        near = depth_of(stack, place + blocks - 1) + used / NEAR + blocks + away >= used
        if near and fits(requests, room, streams, i, place, name):
            return place
    return -1


@njit(cache=True)
def same_place(  # noqa: PLR0917
    requests: Requests,
    room: Room,
    stack: Stack,
    streams: Streams,
    i: int,
    place: int,
    file_of: np.ndarray,
    tolerance: float,
) -> int:
    """Where the request's data is now, if its depth is about the wished one."""
    if place < 0 or abs(depth_of(stack, place) - requests.depth[i]) > tolerance * stack.state[1]:
        return -1
    return place if fits(requests, room, streams, i, place, file_of[place]) else -1


@njit(cache=True)
def place_at_depth(  # noqa: PLR0917
    requests: Requests,
    room: Room,
    stack: Stack,
    streams: Streams,
    i: int,
    file_of: np.ndarray,
    depth: int,
    whole_runs: bool,
) -> int:
    """A place of about a depth, which is looked for nearer and further off."""
    used = stack.state[1]
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
            near = used - 1 - int(away)
            away += 1.0 if nth < TURNS // 2 else step * STEP_GROWTH ** (nth - TURNS // 2)
        else:
            near = depth + int(-away if nth % 2 else away)
            away += 0.0 if nth % 2 else step * STEP_GROWTH ** (nth // 2)
        found = at_depth(stack, min(max(near, 0), used - 1))
        name = file_of[found]
        ahead = blocks
        if whole:
            ahead = requests.rest[i] if whole_runs else min(requests.rest[i], max(blocks, AHEAD_BLOCKS))
        for back in range(min(blocks, BACK_BLOCKS)):
            place = found - back
            if place < room.base[name] or place + ahead > room.base[name] + room.blocks[name]:
                continue
            if stack.slot[place] < 0 or stack.slot[place + blocks - 1] < 0 or stack.slot[place + ahead - 1] < 0:
                continue
            off = max(abs(depth_of(stack, place) - depth), abs(depth_of(stack, place + blocks - 1) - depth))
            end = place + ahead - 1
            if whole_runs and whole:
                # What was used before it comes above it until the run is there.
                before = ahead - 1 if stack.slot[end] > stack.slot[place] else 0
                off = max(off, abs(depth_of(stack, end) + before - depth))
            if off < least and fits(requests, room, streams, i, place, name):
                best, least = place, off
        if least <= used / NEAR + blocks:
            break
    return best


@njit(cache=True)
def place_anywhere(requests: Requests, room: Room, streams: Streams, i: int) -> int:
    """The request's old place, or that of another file on which the thread does nothing else."""
    files = len(room.base)
    for turn in range(min(files, FILES_MAX)):
        name = (requests.file[i] + turn) % files
        place = room.base[name] + requests.low[i] % max(room.blocks[name] - requests.blocks[i] + 1, 1)
        if fits(requests, room, streams, i, place, name):
            return place
    name = requests.file[i]
    return room.base[name] + requests.low[i] % max(room.blocks[name] - requests.blocks[i] + 1, 1)


@njit(cache=True)
def fits(requests: Requests, room: Room, streams: Streams, i: int, place: int, file: int) -> bool:  # noqa: PLR0917
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
    return streams.end[stream] != offset_of(requests, room, i, place, file)


@njit(cache=True)
def offset_of(requests: Requests, room: Room, i: int, place: int, file: int) -> int:
    """Where in the file the request begins if its first block is there."""
    return (place - room.base[file]) * BLOCK_BYTES + requests.inside[i]

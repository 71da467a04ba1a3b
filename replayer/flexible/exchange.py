# SPDX-License-Identifier: Apache-2.0
"""Turns pairs of requests around that may exchange their places, and chains segments (compiled loops for seqFrac)."""

from __future__ import annotations

import numpy as np
from numba import njit

PASSES = 48
# Partners are looked for among this many requests of the same kind around a request, in time.
WINDOW = 256


@njit(cache=True)
def choose_successors(successor: np.ndarray, left: np.ndarray, right: np.ndarray, weight: np.ndarray, more: int) -> int:
    """Greedy path cover: give segments a successor, heaviest pairs first, until `more` is gained.

    Parameters
    ----------
    successor : ndarray of int64, shape (segments,)
        The present neighbours that are used in sequence, -1 for none; changed in place.
    left, right, weight : ndarray of int64, shape (pairs,)
        Candidates by descending weight: requests that become sequential when `right` follows `left`.
    more : int

    Returns
    -------
    int
        The weight gained.
    """
    count = len(successor)
    taken = np.zeros(count, np.bool_)
    parent = np.arange(count)
    for node in range(count):
        if successor[node] >= 0:
            taken[successor[node]] = True
            parent[_root(parent, node)] = _root(parent, successor[node])
    gained = 0
    for pair in range(len(left)):
        a, b = left[pair], right[pair]
        if gained + weight[pair] > more or successor[a] >= 0 or taken[b]:
            continue
        root_a, root_b = _root(parent, a), _root(parent, b)
        if root_a != root_b:
            successor[a] = b
            taken[b] = True
            parent[root_a] = root_b
            gained += weight[pair]
    return gained


@njit(cache=True)
def _root(parent: np.ndarray, node: int) -> int:
    while parent[node] != node:
        parent[node] = parent[parent[node]]
        node = parent[node]
    return node


@njit(cache=True)
def exchange_places(  # noqa: PLR0917
    start: np.ndarray,
    size: np.ndarray,
    before: np.ndarray,
    behind: np.ndarray,
    alike: np.ndarray,
    more: int,
    seed: int,
) -> int:
    """Exchange the starts of requests of one kind in pairs until `more` requests are sequential (negative: fewer).

    Parameters
    ----------
    start, size : ndarray of int64, shape (n,)
        In the order of time; `start` is changed in place.
    before, behind : ndarray of int64, shape (n,)
        Neighbours in the stream, -1 for none.
    alike : ndarray of int, shape (n,)
        Only requests with the same value exchange their places.
    more, seed : int

    Returns
    -------
    int
        What is still missing of `more`.
    """
    np.random.seed(seed)
    count = len(start)
    kinds = np.argsort(alike, kind="mergesort")
    rank = np.empty(count, np.int64)
    rank[kinds] = np.arange(count)
    for _ in range(PASSES):
        if more == 0:
            break
        changed = 0
        # Requests by kind and place, for those that would follow a given end.
        places = kinds[np.argsort(start[kinds], kind="mergesort")]
        places = places[np.argsort(alike[places], kind="mergesort")]
        for i in np.random.permutation(count):
            if more == 0:
                break
            follows = before[i] >= 0 and start[i] == start[before[i]] + size[before[i]]
            j = -1
            if more < 0 and follows:
                offset = np.random.randint(1, WINDOW + 1) * (1 if np.random.random() < 0.5 else -1)
                other = rank[i] + offset
                if 0 <= other < count and alike[kinds[other]] == alike[i]:
                    j = kinds[other]
                elif 0 <= rank[i] - offset < count and alike[kinds[rank[i] - offset]] == alike[i]:
                    j = kinds[rank[i] - offset]
            elif more > 0 and not follows and before[i] >= 0:
                j = _at_place(start, alike, places, alike[i], start[before[i]] + size[before[i]], i)
            if j < 0 or start[j] == start[i]:
                continue
            gain = -_links(start, size, before, behind, i, j)
            start[i], start[j] = start[j], start[i]
            gain += _links(start, size, before, behind, i, j)
            if (more > 0 and 0 < gain <= more) or (more < 0 and more <= gain < 0):
                more -= gain
                changed += 1
            else:
                start[i], start[j] = start[j], start[i]
        if not changed:
            break
    return more


@njit(cache=True)
def _at_place(start: np.ndarray, alike: np.ndarray, places: np.ndarray, kind: int, wanted: int, i: int) -> int:  # noqa: PLR0917
    """Of the requests of a kind that started at `wanted` when `places` was sorted and still do, the next in time."""
    low, high = 0, len(places)
    while low < high:
        middle = (low + high) // 2
        node = places[middle]
        if alike[node] < kind or (alike[node] == kind and start[node] < wanted):
            low = middle + 1
        else:
            high = middle
    best = -1
    for index in range(low, min(low + WINDOW, len(places))):
        node = places[index]
        if alike[node] != kind:
            break
        if start[node] == wanted and node != i and (best < 0 or abs(node - i) < abs(best - i)):
            best = node
    return best


@njit(cache=True)
def _links(start: np.ndarray, size: np.ndarray, before: np.ndarray, behind: np.ndarray, i: int, j: int) -> int:  # noqa: PLR0917
    """Sequential requests among two requests and the ones behind them."""
    total = 0
    nodes = (i, j, behind[i], behind[j])
    for index in range(4):
        node = nodes[index]
        if node < 0 or before[node] < 0:
            continue
        repeated = False
        for earlier in range(index):
            repeated |= nodes[earlier] == node
        if not repeated and start[node] == start[before[node]] + size[before[node]]:
            total += 1
    return total


@njit(cache=True)
def continue_runs(  # noqa: PLR0917
    start: np.ndarray,
    size: np.ndarray,
    before: np.ndarray,
    sequential: np.ndarray,
    wished: np.ndarray,
    run_bytes: np.ndarray,
    extent: np.ndarray,
) -> np.ndarray:
    """New starts: a run whose first request is wished for begins where the request before it ends, if it fits there.

    Parameters
    ----------
    start, size, before : ndarray of int64, shape (n,)
        In the order of time, so that the request before stands before.
    sequential, wished : ndarray of bool, shape (n,)
        Sequential requests stay behind the one before them.
    run_bytes, extent : ndarray of int64, shape (n,)
        Of the request's run, and of its file.

    Returns
    -------
    ndarray of int64, shape (n,)
    """
    moved = start.copy()
    for i in range(len(start)):
        previous = before[i]
        if previous < 0:
            continue
        behind = moved[previous] + size[previous]
        if sequential[i] or (wished[i] and behind + run_bytes[i] <= extent[i]):
            moved[i] = behind
    return moved

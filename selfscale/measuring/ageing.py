# SPDX-License-Identifier: Apache-2.0
"""Turns a page cache as it is after a start into one that has been in use, before anything is measured in it.

What a cache takes in first lies side by side in memory. Reclaim frees pages here and there, and what is cached from
then on lies scattered over them: cached reads take up to twice as long, and it stays so (docs/decisions/0023). A
machine in use is in that state. What is measured on the way to it says nothing of any machine, neither the fresh one
nor the one that applications meet.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from characterize.units import format_duration
from characterize.workload import Workload
from selfscale.measure import measure
from selfscale.measuring.access import Access
from selfscale.measuring.measurable_sizes import PAGE_BYTES, PROCESS_NUM_MAX, align

if TYPE_CHECKING:
    from replayer.running.confine import MemoryGroup

AGEING_S, SHARE_MAX = 10.0, 0.04
"""How long it is done, by then most of it has happened (docs/decisions/0023); and at most so much of a budget."""
BEYOND = 2.0
"""uniqueBytes over the cache: half of the requests miss, and each of them has another page reclaimed."""


def age(
    image: Path,
    group: MemoryGroup | None,
    seconds: float,
    say: Callable[[str], None],
    *,
    cache_bytes: float,
    cpus: int,
) -> float:
    """Read and write single pages at random places, more than the cache holds.

    Parameters
    ----------
    image : Path
    group : MemoryGroup or None
        An entered group that is measured in.
    seconds : float
        For which it is done.
    say : callable
        Is told before.
    cache_bytes : float
        What it holds at most.
    cpus : int
        A process for each.

    Returns
    -------
    float
        Seconds that all of it took.

    Raises
    ------
    FlextraceError
        The engine failed, or requests did.
    """
    say(f"ageing the page cache for {format_duration(seconds)}")
    processes = float(min(cpus, PROCESS_NUM_MAX))
    workload = Workload(align(BEYOND * cache_bytes), 0.0, 0.5, float(PAGE_BYTES), processes)
    point = measure(workload, image, access=Access(), memory_group=group, min_seconds=seconds, max_seconds=seconds)
    return point.cost_s

# SPDX-License-Identifier: Apache-2.0
"""Turns sizes that are wanted into those that workloads are measured with: whole pages, and some requests to a file."""

from __future__ import annotations

import math

from characterize.workload import Workload

PAGE_BYTES = 4096
REQUESTS_PER_FILE_MIN = 8
PROCESS_NUM_MAX = 16
"""More are neither tried nor given files."""


def align_request(size: float) -> float:
    """The request size next to `size` that Willy makes: a multiple of 4 KiB, or a power of two from 512 bytes on."""
    return align(size) if size >= PAGE_BYTES else float(2 ** max(9, round(math.log2(size))))


def align_down(size: float) -> float:
    """The largest multiple of 4 KiB that is not above a size."""
    return float(size // PAGE_BYTES * PAGE_BYTES)


def align(size: float) -> float:
    """The multiple of 4 KiB next to a size, at least one."""
    return float(max(1, round(size / PAGE_BYTES)) * PAGE_BYTES)


def feasible(workload: Workload) -> Workload:
    """The workload with a sizeMean of which a file holds at least eight requests."""
    largest = workload.unique_bytes / workload.process_num / REQUESTS_PER_FILE_MIN
    return workload if workload.size_mean <= largest else workload.replace(size_mean=align_request(largest))

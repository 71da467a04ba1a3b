# SPDX-License-Identifier: Apache-2.0
"""A simulated machine whose times are round numbers, and operations on it, for sums made by hand."""

import numpy as np

from selfscale.measuring.storage import StorageTimes
from selfscale.simulation.machine_costs import MachineCosts, RequestCosts
from selfscale.simulation.operations import Operations
from selfscale.simulation.read_ahead_rules import PAGE_BYTES, ReadAheadRules

ACCESS_NS, PAGE_NS, SYNC_NS, JOURNAL_NS = 100_000.0, 4_000.0, 700_000.0, 900_000.0
STORAGE = StorageTimes(
    read_ns=ACCESS_NS,
    paused_read_ns=ACCESS_NS,
    rested_read_ns=ACCESS_NS,
    awake_read_ns=ACCESS_NS,
    read_page_ns=PAGE_NS,
    read_busy_ns=ACCESS_NS / 2,
    read_page_busy_ns=PAGE_NS,
    behind_burst_ns=0.0,
    held_up_ns=0.0,
    ahead_page_ns=0.0,
    overwrite_call_ns=7.0,
    overwrite_page_ns=7.0,
    append_call_ns=7.0,
    append_page_ns=7.0,
    sync_ns=SYNC_NS,
    paused_sync_ns=SYNC_NS,
    append_sync_ns=SYNC_NS + JOURNAL_NS,
    sync_more_ns=0.0,
    sync_busy_ns=0.0,
    append_sync_busy_ns=0.0,
    sync_more_busy_ns=0.0,
    sync_held_up_ns=0.0,
    directory_sync_ns=150_000.0,
)
REQUESTS = RequestCosts(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
MACHINE = MachineCosts(
    processors=0,
    serving_threads=0,
    cache_pages=1000,
    read_ahead=ReadAheadRules(32, 320, large_folios=True),
    dirty_pages=200.0,
    background_pages=150.0,
    burst_pages=1,
    behind_page_ns=0.0,
    beside_burst=1.0,
    miss_page_ns=0.0,
    write_busy_ns=0.0,
    write_page_busy_ns=PAGE_NS,
    shared_frac=0.0,
    requests=REQUESTS,
    storage=STORAGE,
)


def stored_on(machine=MACHINE, **changes):
    """A machine with another storage."""
    return machine._replace(storage=machine.storage._replace(**changes))


def operations(rows, *, stored=10_000, cached=(), after=(-1,), waits_for=None, gap_ns=1000.0, processor_ns=1000.0):
    """Rows of (kind, first page, pages), or of these and thread; on one file of 10,000 pages."""
    count = len(rows)
    kind, first, pages = (np.array([row[column] for row in rows]) for column in range(3))
    return Operations(
        kind=kind.astype(np.int8),
        thread=np.array([row[3] if len(row) > 3 else 0 for row in rows], np.int64),
        reader=np.zeros(count, np.int64),
        first=first.astype(np.int64),
        pages=pages.astype(np.int64),
        size_bytes=pages.astype(np.int64) * PAGE_BYTES,
        head=np.zeros(count, bool),
        tail=np.zeros(count, bool),
        direct=np.zeros(count, bool),
        synced=np.zeros(count, bool),
        processor_ns=np.full(count, float(processor_ns)),
        gap_ns=np.full(count, float(gap_ns)),
        wait_gap_ns=np.full(count, float(gap_ns)),
        computing_ns=np.full(count, np.nan),
        run_delay_ns=np.zeros(count),
        together=np.zeros(count, bool),
        waits_for=np.array([(waits_for or {}).get(number, -1) for number in range(count)], np.int64),
        after=np.array(after, np.int64),
        reader_file=np.zeros(1, np.int64),
        file_begin=np.zeros(1, np.int64),
        file_end=np.full(1, 10_000, np.int64),
        stored=np.arange(10_001) < stored,
        cached=np.array(cached, np.int64),
        span_s=0.0,
    )

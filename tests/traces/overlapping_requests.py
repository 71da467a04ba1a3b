# SPDX-License-Identifier: Apache-2.0
"""Block requests for a small disk, of which some are in flight at once."""

import numpy as np

from characterize.layout import BlockOp

SIZE = 64 << 20
COUNT = 211


def overlapping_requests(span=SIZE, seed=3, apart=64 << 10):
    """Rows of BLOCK records: up to 5 in flight, reads and writes of 4 to 64 KiB, from multiples of ``apart`` on."""
    random = np.random.default_rng(seed)
    places = random.permutation(span // apart)[:COUNT] * (apart >> 9)
    rows = []
    for at, sector in enumerate(places.tolist()):
        kind = BlockOp.READ if random.random() < 0.6 else BlockOp.WRITE
        size = int(random.integers(1, 17)) << 12
        duration = int(random.integers(1_000, 50_000))
        rows.append(
            {"op": kind, "start_ns": 10_000 * (at + 1), "duration_ns": duration, "sector": sector, "bytes": size}
        )
    return rows

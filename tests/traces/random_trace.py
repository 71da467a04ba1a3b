# SPDX-License-Identifier: Apache-2.0
"""A trace of reads and writes at random, and its rows to be counted naively."""

import numpy as np

from tests.traces.made_trace import made_trace, read, write


def random_trace(count, files):
    random = np.random.default_rng(count)
    start = np.sort(random.integers(0, 10**7, count))
    rows = [
        (read if random.random() < 0.7 else write)(
            int(random.integers(0, 10**6)), int(random.integers(1, 9000)), int(at), 50, file=int(random.integers(files))
        )
        for at in start
    ]
    return made_trace(rows, paths={file: f"/f{file}" for file in range(files)}), rows

# SPDX-License-Identifier: Apache-2.0
"""What a cache holds after a trace, against one that is gone through request by request."""

from collections import OrderedDict

import numpy as np
import pytest

from characterize.layout import RecordKind
from characterize.workload import Workload
from replayer.willy import make_trace
from selfscale.measuring.last_used import PAGE_BYTES, RANGES_MAX, last_used

pytestmark = pytest.mark.parallel

MIB = 1 << 20


def pages_of(ranges, file):
    mine = ranges[ranges["file"] == file]
    pages = [
        np.arange(offset // PAGE_BYTES, -(-(offset + count) // PAGE_BYTES))
        for offset, count in mine[["offset", "bytes"]].tolist()
    ]
    return set(np.concatenate(pages).tolist())


def cached_after(io, file, pages_max):
    """The pages of a file that a cache of so many holds which drops the one used longest ago."""
    cache = OrderedDict()
    for offset, size in io[io["file"] == file][["offset", "result"]].tolist():
        for page in range(offset // PAGE_BYTES, -(-(offset + size) // PAGE_BYTES)):
            cache[page] = True
            cache.move_to_end(page)
            if len(cache) > pages_max:
                cache.popitem(last=False)
    return set(cache)


@pytest.mark.parametrize("share", [0.13, 0.5, 0.89])
@pytest.mark.parametrize(
    "workload", [Workload(23 * MIB, 0.3, 0.5, 16384.0, 2.0), Workload(7 * MIB, 0.0, 1.0, 5e4, 1.0)]
)
def test_they_are_the_pages_that_were_used_last(workload, share):
    trace = make_trace(workload, seed=3)
    io, files = trace.arrays[RecordKind.IO], trace.arrays[RecordKind.FILE]
    ranges = last_used(trace, share)
    for number, size in files[["file", "size_bytes"]].tolist():
        wanted = round(share * -(-size // PAGE_BYTES))
        got, expected = pages_of(ranges, number), cached_after(io, number, wanted)
        assert len(got) == wanted
        # Of the request that was used longest ago a part.
        assert len(got ^ expected) <= 4 * workload.size_mean / PAGE_BYTES
    begins, ends = ranges["offset"], ranges["offset"] + ranges["bytes"]
    same = ranges["file"][1:] == ranges["file"][:-1]
    assert (begins[1:][same] > ends[:-1][same]).all()


def test_of_many_ranges_coarser_ones_are_made_of_the_same_sum():
    workload = Workload(211 * MIB, 0.0, 1.0, 4096.0, 3.0)
    trace = make_trace(workload, requests=150_000, seed=1)
    ranges = last_used(trace, 0.5)
    assert RANGES_MAX / 3 < len(ranges) <= RANGES_MAX
    assert ranges["bytes"].sum() == pytest.approx(0.5 * 211 * MIB, rel=0.01)
    io = trace.arrays[RecordKind.IO]
    latest = np.concatenate([io[io["file"] == file][-2000:] for file in (1, 2, 3)])
    cached = sum(
        offset // PAGE_BYTES in pages
        for file in (1, 2, 3)
        for pages in [pages_of(ranges, file)]
        for offset in latest["offset"][latest["file"] == file].tolist()
    )
    # A block stays for its page that was used last.
    assert cached >= 0.9 * len(latest)

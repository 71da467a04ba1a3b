# SPDX-License-Identifier: Apache-2.0
"""Where in memory the engine's reads go to and its writes come from, told by strace."""

import re
import subprocess

import pytest

import characterize
from characterize.layout import IoFlag
from tests.traces.made_trace import made_trace, read, write
from tests.truths.straced import DATA, ENGINE, needs_engine, needs_strace

pytestmark = [needs_engine, needs_strace, pytest.mark.parallel]

PAGE = 4096
READ_PLACES, WRITE_PLACES, WRITE_PLACES_SHARED = 1024, 32, 4096
"""replayer/engine/buffer.h"""


def addresses_of(place, requests, *options):
    """Of one thread's reads or writes at offset 0, a microsecond apart: in turn where they went, lowest = 0."""
    sizes = [request["asked_bytes"] for request in requests]
    io = [{**request, "start_ns": 1000 + 1000 * at} for at, request in enumerate(requests)]
    made = made_trace(io, files=[{"file": 1, "size_bytes": max(sizes)}])
    trace = characterize.write(made, place / "made.iotrace", force=True)
    log = place / "log"
    command = [ENGINE, trace, f"--directory={place / 'image'}", "--engine=sync", *options]
    strace = ["strace", "-f", "-e", f"trace={DATA}", "-e", f"raw={DATA}", "-o", log]
    done = subprocess.run([*strace, *command], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode in (0, 3), done.stderr  # under strace nothing is on time
    calls = re.findall(r"p(?:read|write)64\(\w+, (\w+), (\w+), 0\) = (\w+)", log.read_text())
    assert [int(size, 16) for _, _, size in calls[-len(sizes) :]] == sizes
    addresses = [int(address, 16) for address, _, _ in calls[-len(sizes) :]]
    return [address - min(addresses) for address in addresses]


@pytest.mark.parametrize("timing", ["think", "recorded"])
def test_reads_with_times_go_to_places_that_are_cold(tmp_path, timing):
    """As in an application; no place comes again before as many pages were read as caches hold."""
    addresses = addresses_of(tmp_path, [read(0, PAGE, 0, 500)] * 1511, f"--timing={timing}")
    assert len(set(addresses[:READ_PLACES])) == READ_PLACES
    assert max(addresses) == (READ_PLACES - 1) * PAGE
    assert addresses[READ_PLACES:] == addresses[: 1511 - READ_PLACES]


def test_reads_into_memory_that_is_warm_go_to_one_place(tmp_path):
    """As the recording says of each; the others go their way meanwhile."""
    cold, warm = read(0, PAGE, 0, 500), read(0, PAGE, 0, 500, flags=IoFlag.REUSED_MEMORY)
    addresses = addresses_of(tmp_path, [cold, warm] * 307, "--timing=think")
    assert set(addresses[1::2]) == {addresses[0]}
    assert len(set(addresses[::2])) == 307


def test_reads_without_times_go_to_one_place(tmp_path):
    """As fio's do, beside which their rate is measured."""
    assert set(addresses_of(tmp_path, [read(0, PAGE, 0, 500)] * 13, "--timing=asap")) == {0}


def test_large_reads_move_within_their_memory(tmp_path):
    """A read of more than the engine maps at once: none fails for its place."""
    assert len(set(addresses_of(tmp_path, [read(0, 9 << 20, 0, 500)] * 3, "--timing=think"))) == 3


@pytest.mark.parametrize(
    ("timing", "places"), [("think", WRITE_PLACES_SHARED), ("recorded", WRITE_PLACES_SHARED), ("asap", WRITE_PLACES)]
)
def test_writes_of_shared_memory_come_from_places_that_are_cold(tmp_path, timing, places):
    """Others have made what is in it, who may be on another processor."""
    made = write(0, PAGE, 0, 500, flags=IoFlag.SHARED_MEMORY)
    addresses = addresses_of(tmp_path, [made] * 5003, f"--timing={timing}")
    assert len(set(addresses[:places])) == places
    assert max(addresses) == (places - 1) * PAGE
    assert addresses[places:] == addresses[: 5003 - places]


def test_other_writes_come_from_places_that_a_cache_holds(tmp_path):
    """A program has just made what it writes; among writes of shared memory, too."""
    own, shared = write(0, PAGE, 0, 500), write(0, PAGE, 0, 500, flags=IoFlag.SHARED_MEMORY)
    for requests in [own] * 601, [own, shared] * 601:
        addresses = addresses_of(tmp_path, requests, "--timing=think")[:: len(requests) // 601]
        assert max(addresses) - min(addresses) <= (WRITE_PLACES - 1) * PAGE


@pytest.mark.parametrize("size_bytes", [100, 4096, 6000, 8192, 12288, 20480, 32768, 36864, 65536])
def test_what_is_written_within_128_kib_is_all_different(tmp_path, size_bytes):
    """A file system that compresses so much at once is to find random data, whatever the requests' size."""
    pages = -(-size_bytes // PAGE)
    addresses = addresses_of(tmp_path, [write(0, size_bytes, 0, 500)] * 101, "--timing=asap")
    window = 32 // pages
    for first in range(101 - window + 1):
        written = [address // PAGE + page for address in addresses[first : first + window] for page in range(pages)]
        assert len(set(written)) == len(written)


def test_large_writes_of_shared_memory_lie_within_it(tmp_path):
    """A write of more than the engine maps at once: none fails for its place."""
    made = write(0, 9 << 20, 0, 500, flags=IoFlag.SHARED_MEMORY)
    assert len(set(addresses_of(tmp_path, [made] * 3, "--timing=think"))) == 3

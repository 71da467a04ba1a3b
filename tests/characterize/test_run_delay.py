# SPDX-License-Identifier: Apache-2.0
"""How long of a call its thread waited for a processor: as the kernel counts it, and in a simulation."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import characterize
from characterize.characterization import characterize as characterization_of
from characterize.layout import IO_RUN_DELAY_ALL, IO_RUN_DELAY_NONE, IO_RUN_DELAY_SHIFT, Fileop, IoFlag
from characterize.run_delay import run_delay_shares
from characterize.stream import stream_of
from characterize.text import render
from selfscale.comparing.fidelity_side import side_of
from selfscale.models.service_time import CONSTANTS, ServiceTimes
from selfscale.simulation.machine_costs import machine_costs
from selfscale.simulation.operations import Kind, operations_of
from selfscale.simulation.run import run
from tests.formulas.simulated_machine import ACCESS_NS, MACHINE, SYNC_NS, operations
from tests.traces.made_trace import made_trace, read, write
from tests.truths.told import run_recorder

pytestmark = pytest.mark.parallel

TIMES = {"start_monotonic_ns": 1, "end_monotonic_ns": 1_000_000}
PAGE, WRITES, BYTES = 4096, 211, 2 << 20
# Writes and syncs on one processor, alone or beside another process that computes all the time, and tells what its
# thread waited for that processor meanwhile, and how long it all took.
PROGRAM = f"""
import os, sys, time
descriptor = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
data = bytes({BYTES})
os.sched_setaffinity(0, {{min(os.sched_getaffinity(0))}})
other = os.fork() if sys.argv[2] == "crowded" else None
while other == 0:
    pass
waited = lambda: int(open("/proc/thread-self/schedstat").read().split()[1])
before, begin = waited(), time.monotonic_ns()
for number in range({WRITES}):
    os.pwrite(descriptor, data, 0)
    if number % 20 == 0:
        os.fdatasync(descriptor)
print(waited() - before, time.monotonic_ns() - begin)
if other:
    os.kill(other, 9)
    os.wait()
"""


def flags_of(share):
    """Of a record whose call waited for a processor so long of its time."""
    return IO_RUN_DELAY_NONE + round(share * (IO_RUN_DELAY_ALL - IO_RUN_DELAY_NONE)) << IO_RUN_DELAY_SHIFT


@pytest.mark.records
@pytest.mark.parametrize("place", ["alone", "crowded"])
def test_recorded_as_the_kernel_counts_it(tmp_path, place):
    path = tmp_path / "file"
    done = run_recorder(tmp_path / "t.iotrace", sys.executable, "-c", PROGRAM, path, place)
    assert done.returncode == 0, done.stderr
    waited_ns, took_ns = map(int, done.stdout.split())
    trace = characterize.open(tmp_path / "t.iotrace")
    writes = trace.io[trace.io["asked_bytes"] == BYTES]
    syncs = trace.fileops[trace.fileops["op"] == Fileop.FDATASYNC]
    assert (len(writes), len(syncs)) == (WRITES, -(-WRITES // 20))
    found_ns = 0.0
    for calls in (writes, syncs):
        shares = run_delay_shares(calls["flags"].to_numpy())
        assert np.isfinite(shares).all()
        found_ns += (shares * calls["duration_ns"]).sum()
    # Nearly all of the time passes in these calls; what one waits between them is not in them.
    assert found_ns == pytest.approx(waited_ns, abs=0.1 * took_ns)
    if place == "crowded":
        assert found_ns > 0.2 * took_ns


@pytest.mark.records
def test_other_file_operations_keep_what_their_flags_say(tmp_path):
    program = "import os, sys; os.posix_fallocate(os.open(sys.argv[1], os.O_RDWR | os.O_CREAT), 0, 4096)"
    done = run_recorder(tmp_path / "t.iotrace", sys.executable, "-c", program, tmp_path / "file")
    assert done.returncode == 0, done.stderr
    fileops = characterize.open(tmp_path / "t.iotrace").fileops
    for kind in (Fileop.FALLOCATE, Fileop.OPEN, Fileop.CLOSE):
        flags = fileops.loc[fileops["op"] == kind, "flags"].to_numpy()
        assert len(flags)
        assert not (flags >> IO_RUN_DELAY_SHIFT).any()


def test_shares_and_what_was_not_measured():
    flags = np.array([0, flags_of(0.0), flags_of(0.5), flags_of(1.0), int(IoFlag.CTIME_QUERIED), 7 << 24], np.uint32)
    flags[1:4] |= np.uint32(7 << 24 | IoFlag.CTIME_QUERIED | IoFlag.DIRECT)
    assert run_delay_shares(flags) == pytest.approx([np.nan, 0, 0.5, 1, np.nan, np.nan], nan_ok=True)


def test_of_all_times_it_is_the_share_where_it_was_measured():
    io = [
        read(0, PAGE, 0, 62_000, flags=flags_of(0.5)),
        read(0, PAGE, 100_000, 62_000, flags=flags_of(0.0)),
        read(0, PAGE, 200_000, 31_000),
        write(0, PAGE, 300_000, 31_000),
    ]
    fileops = [
        {"op": op, "start_ns": 400_000 + 20_000 * at, "duration_ns": 6_200, "flags": flags}
        for at, (op, flags) in enumerate(
            [(Fileop.FSYNC, flags_of(1.0)), (Fileop.FDATASYNC, flags_of(0.5)), (Fileop.SYNC_FILE_RANGE, 7 << 16)]
        )
    ]
    trace = made_trace(io, fileops=fileops, files=[{"file": 1, "size_bytes": PAGE}], paths={1: "/a"}, **TIMES)
    found = characterization_of(trace)
    assert found.layers["vfs"].run_delay == {
        "read": {"share": pytest.approx(0.25), "measured_share": pytest.approx(0.8)},
        "write": None,
        "sync": {"share": pytest.approx(0.75), "measured_share": pytest.approx(2 / 3)},
    }
    assert "of these times waiting for a processor: read 0.2500, sync 0.7500" in render(found)
    # Also in pieces, as a replay is compared with its original.
    for records in (1, 2, 100):
        assert side_of(stream_of(trace, records)).numbers["run_delay"] == found.layers["vfs"].run_delay


def test_what_waits_for_storage_elsewhere_waits_for_a_processor_as_those_that_did():
    io = [
        read(0, PAGE, 0, 100_000, missed_bytes=PAGE, flags=flags_of(0.5)),
        read(PAGE, PAGE, 200_000, 100_000, missed_bytes=PAGE, flags=flags_of(0.25) | 7 << 24),
        # In the cache it waited because others had its processor, which is in what it takes of one.
        read(0, PAGE, 400_000, 2_000, missed_bytes=0, flags=flags_of(1.0)),
        write(0, PAGE, 500_000, 2_000, flags=flags_of(1.0)),
    ]
    fileops = [
        {"op": Fileop.FSYNC, "start_ns": 600_000, "duration_ns": 10_000, "flags": flags_of(0.5)},
        {"op": Fileop.FALLOCATE, "start_ns": 700_000, "duration_ns": 10_000, "length": PAGE, "flags": 3 << 16},
    ]
    files = [{"file": 1, "size_bytes": 3 * PAGE}]
    found = operations_of(made_trace(io, fileops=fileops, files=files, paths={1: "/a"}))
    rounding_ns = 100_000 / (IO_RUN_DELAY_ALL - IO_RUN_DELAY_NONE)
    assert found.run_delay_ns == pytest.approx([50_000, 25_000, 37_500, 0, 5_000, 0], abs=rounding_ns)


def test_without_a_measurement_nothing_is_known_of_it():
    io = [read(at * PAGE, PAGE, at * 200_000, 100_000, missed_bytes=PAGE) for at in range(3)]
    found = operations_of(made_trace(io, files=[{"file": 1, "size_bytes": 3 * PAGE}], paths={1: "/a"}))
    assert found.run_delay_ns.tolist() == [0, 0, 0]


@pytest.mark.parametrize(("serving", "processors", "waits"), [(0, 2, 1), (1, 2, 1), (2, 1, 1), (1, 0, 1), (2, 0, 1)])
def test_only_who_waits_for_storage_waits_for_a_processor_then(serving, processors, waits):
    """And whoever serves it where more threads issue it than there are processors; here is one, or nobody knows (0)."""
    rows = [(Kind.READ, 100, 1), (Kind.READ, 100, 1), (Kind.WRITE, 100, 1), (Kind.SYNC, 0, 0), (Kind.SYNC, 0, 0)]
    todo = operations(rows, gap_ns=0.0, processor_ns=1000.0)
    todo.run_delay_ns[:] = 7000.0
    start, end, _ = run(todo, MACHINE._replace(serving_threads=serving, processors=processors))
    took_ns = [ACCESS_NS + 1000 + 7000 * waits, 1000, 1000, SYNC_NS + 7000 * waits, 1000]
    assert (end - start).tolist() == took_ns


@pytest.mark.parametrize(("each", "waits"), [((20, 20), 1), ((20, 20, 1, 1), 1), ((20, 20, 20), 2), ((20,) * 4, 2)])
def test_threads_with_few_operations_need_no_processor(each, waits):
    """What serves an access waits where more threads than two have their share of them."""
    rows = [(Kind.READ, 0, 1, thread) for thread, count in enumerate(each) for _ in range(count)]
    todo = operations(rows, after=[-1] * len(each), gap_ns=0.0, processor_ns=0.0)
    todo.run_delay_ns[:] = 7000.0
    start, end, waited = run(todo, MACHINE._replace(serving_threads=1, processors=2))
    slept = waited > 0
    assert slept.any()
    assert set((end - start - waited)[slept]) == {7000.0 * waits}


def test_threads_one_after_the_other_leave_a_processor_to_what_serves_them():
    """As the processes of a build do, of which there are many."""
    rows = [(Kind.READ, 100 * number, 1, number) for number in range(4)]
    todo = operations(rows, after=[-1, 0, 1, 2], processor_ns=0.0)
    todo.run_delay_ns[:] = 7000.0
    start, end, waited = run(todo, MACHINE._replace(serving_threads=1, processors=2))
    assert (end - start - waited).tolist() == [7000.0] * 4


@pytest.mark.parametrize(
    ("environment", "serving"),
    [
        ({}, 0),
        ({"device": "/dev/nvme0n1p2", "filesystem": "ext4"}, 0),
        ({"device": "/dev/loop0", "filesystem": "xfs"}, 1),
        ({"device": "/dev/loop0", "filesystem": "btrfs"}, 2),
        ({"device": "/dev/vda", "filesystem": "btrfs"}, 1),
        ({"device": None, "filesystem": None}, 0),
    ],
)
def test_threads_of_the_kernel_that_serve_an_access(environment, serving):
    any_constants = ServiceTimes(np.zeros(len(CONSTANTS)), np.eye(len(CONSTANTS)), 128e6)
    assert machine_costs(any_constants, MACHINE.storage, environment).serving_threads == serving


@pytest.mark.parametrize(
    ("environment", "worked", "beside"),
    [
        ({}, False, 1.0),
        ({"device": None, "cpus": 2}, False, 1.0),
        ({"device": "/dev/vda", "cpus": 2}, False, 1.0),
        ({"device": "/dev/zram0"}, True, 1.0),
        ({"device": "/dev/zram0", "cpus": 2}, True, 1.5),
        ({"device": "/dev/zram0", "cpus": 8}, True, 1.125),
    ],
)
def test_reads_wait_for_processors_that_write_a_burst_back(environment, worked, beside):
    """Where storage is a processor's work; else as long as the probe did, for 8 MiB."""
    any_constants = ServiceTimes(np.zeros(len(CONSTANTS)), np.eye(len(CONSTANTS)), 128e6)
    costs = machine_costs(any_constants, MACHINE.storage._replace(behind_burst_ns=2048e3), environment)
    assert costs.behind_page_ns == (costs.write_page_busy_ns if worked else 1e3)
    assert costs.write_page_busy_ns > 1e3
    assert costs.beside_burst == beside

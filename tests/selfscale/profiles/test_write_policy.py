# SPDX-License-Identifier: Apache-2.0
"""The write policy: of machines that are formulas, and of file systems that were mounted with and without sync."""

from dataclasses import replace

import pytest

from characterize.errors import FlextraceError
from characterize.workload import Workload
from replayer.running.binaries import find_binary
from replayer.running.confine import MemoryGroup
from selfscale.exploring.plan import Step
from selfscale.measure import Point, measure
from selfscale.profile import Profile, Region
from selfscale.profiles.conclusions import conclude
from selfscale.profiles.write_policy import CANCELLING, THROUGH, UNCACHED, UNDECIDED, write_policy
from selfscale.reporting.strengths import strengths
from tests.formulas.direction_machine import MIB, DirectionMachine
from tests.machines.block_device import loop_device, mounted

FOCAL = Workload(64 * MIB, 0.5, 0.5, 32768.0, 1.0)
REGIONS = [Region(10 * MIB, 128 * MIB, FOCAL), Region(128 * MIB, 512 * MIB, FOCAL.replace(unique_bytes=320 * MIB))]


def points_of(machine):
    workloads = [FOCAL.replace(unique_bytes=size * MIB, read_frac=frac) for size in (64, 320) for frac in (0.0, 1.0)]
    return [machine.measure(Step(workload, "curve", 1.0)) for workload in workloads]


@pytest.mark.parametrize(
    ("read", "write", "kind"),
    [(128, 128, CANCELLING), (128, 0, THROUGH), (0, 0, UNCACHED), (128, 60, CANCELLING), (128, 20, UNDECIDED)],
)
def test_by_traffic(read, write, kind):
    policy = write_policy(points_of(DirectionMachine(read * MIB, write * MIB)), REGIONS)
    assert (policy.kind, policy.basis) == (kind, "traffic")
    assert policy.unique_bytes == 64 * MIB
    assert policy.written_frac == pytest.approx(1 - write / 64 if write < 64 else 0)


@pytest.mark.parametrize(
    ("read", "write", "kind"),
    # With nothing to see of a disk (a cache without end, none at all) the throughput tells nothing.
    [(128, 128, CANCELLING), (128, 0, THROUGH), (0, 0, UNDECIDED), (10_000, 10_000, UNDECIDED)],
)
@pytest.mark.parametrize("frac", [None, 0.0])
def test_by_throughput_where_nothing_is_counted(read, write, kind, frac):
    machine = DirectionMachine(read * MIB, write * MIB, counts_traffic=False)
    points = [Point(**{**vars(point), "device_frac": frac}) for point in points_of(machine)]
    policy = write_policy(points, REGIONS)
    assert (policy.kind, policy.basis, policy.written_frac) == (kind, "throughput", None)


def test_a_write_buffer_is_no_write_cancelling():
    # Writes go on at once but reach storage all the same: three times as fast as beyond the cache, and all are stored.
    points = points_of(DirectionMachine(128 * MIB, 0))
    points = [
        Point(**{**vars(point), "throughput_bytes_per_s": 3 * point.throughput_bytes_per_s})
        if point.workload.read_frac == 0 and point.workload.unique_bytes == 64 * MIB
        else point
        for point in points
    ]
    assert write_policy(points, REGIONS).kind == THROUGH


def test_few_flushed_pages_in_large_folios_are_no_write_through():
    points = points_of(DirectionMachine(128 * MIB, 128 * MIB))
    points = [
        Point(**{**vars(point), "device_frac": 1.5}) if point.workload == FOCAL.replace(read_frac=0.0) else point
        for point in points
    ]
    assert write_policy(points, REGIONS).kind == UNDECIDED


@pytest.mark.parametrize(
    ("counted", "unsteady", "steady"),
    [
        (True, None, True),
        (True, (64, 0.0), False),
        (True, (64, 1.0), False),
        (True, (320, 0.0), True),
        (False, None, True),
        (False, (320, 0.0), False),
        (False, (64, 0.0), False),
    ],
)
def test_it_is_said_where_what_it_rests_on_was_not_steady(counted, unsteady, steady):
    """What throughput tells rests on both sides of the cache, what traffic tells on the inside."""
    points = [
        replace(point, steady=(point.workload.unique_bytes / MIB, point.workload.read_frac) != unsteady)
        for point in points_of(DirectionMachine(128 * MIB, 128 * MIB, counts_traffic=counted))
    ]
    assert sum(not point.steady for point in points) == (unsteady is not None)
    policy = write_policy(points, REGIONS)
    assert (policy.kind, policy.steady) == (CANCELLING, steady)
    lines = strengths(conclude(Profile(measured=points, regions=REGIONS)))
    (told,) = [line for line in lines if "Write policy" in line]
    assert ("by points that were not steady" in told) == (not steady)


@pytest.mark.parametrize(
    ("frac", "told"),
    [(8.7, "870 %"), (1.0, "100 %"), (0.72, "72 %"), (0.0123, "1.2 %"), (0.00004, "0.004 %"), (1e-8, "0 %")],
)
def test_shares_are_told_in_digits(frac, told):
    """Of large folios many times what was written is counted, of which the throughput says that it is not so."""
    points = [
        replace(point, device_frac=frac) if point.workload == FOCAL.replace(read_frac=0.0) else point
        for point in points_of(DirectionMachine(128 * MIB, 128 * MIB))
    ]
    lines = strengths(conclude(Profile(measured=points, regions=REGIONS)))
    assert f"at most {told} of the bytes written went to storage" in "".join(lines)


def test_without_points_of_a_direction_nothing_is_said():
    points = points_of(DirectionMachine(128 * MIB, 128 * MIB))
    assert write_policy([], REGIONS).kind == UNDECIDED
    assert write_policy([], []).kind == UNDECIDED
    only_reads = write_policy([point for point in points if point.workload.read_frac == 1], REGIONS)
    assert (only_reads.kind, only_reads.basis) == (UNDECIDED, "")


@pytest.mark.root
@pytest.mark.parametrize("kind", ["ext4", "xfs"])
@pytest.mark.parametrize("direct_io", ["on", "off"])
@pytest.mark.parametrize(("option", "expected"), [("sync", THROUGH), ("async", CANCELLING)])
def test_of_a_real_mount(tmp_path, kind, direct_io, option, expected):
    """The loop device counts what it was told to write, which is what the classification is compared with."""
    try:
        find_binary("flextrace-replay")
        with MemoryGroup(16 * MIB):
            pass
    except FlextraceError as error:
        pytest.skip(str(error))
    focal = Workload(8 * MIB, 0.5, 0.5, 32768.0, 1.0)
    with (
        loop_device(tmp_path / "image", 512 * MIB, f"--direct-io={direct_io}") as disk,
        mounted(kind, disk, tmp_path / "place", "-o", option) as place,
    ):
        read, write = (
            measure(focal.replace(read_frac=frac), place / "image", max_seconds=0.6, min_seconds=0.2)
            for frac in (1.0, 0.0)
        )
        with MemoryGroup(16 * MIB) as group:  # what exceeds it shows that the kernel counts here
            far = read.workload.replace(unique_bytes=64 * MIB)
            beyond = measure(far, place / "image", memory_group=group, max_seconds=0.6, min_seconds=0.2)
        before = disk.statistics()["write_bytes"]
        again = measure(write.workload, place / "image", max_seconds=0.6, min_seconds=0.2)
        stored = disk.statistics()["write_bytes"] - before
    written = again.response_time["write"]["count"] * 32768
    assert (stored > 0.9 * written) == (expected == THROUGH)
    policy = write_policy([read, write, beyond], [Region(4 * MIB, 16 * MIB, focal)])
    assert (policy.kind, policy.basis) == (expected, "traffic")

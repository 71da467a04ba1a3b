# SPDX-License-Identifier: Apache-2.0
"""One workload measured, with a replay that is a formula: what is run, in which order, what becomes of its result."""

import json
import math
import tempfile

import numpy as np
import pytest

import characterize
from characterize.errors import FlextraceError
from characterize.layout import Fileop, IoFlag, IoOp, RecordKind
from characterize.workload import Workload
from replayer.willy import make_trace
from selfscale.measure import (
    LEAD_MAX,
    LEAD_MIN,
    Point,
    lead_of,
    measure,
    settle_bytes,
)
from selfscale.measuring import scratch
from selfscale.measuring.access import Access
from selfscale.measuring.point_trace import REQUESTS_MAX, trace_length, write_willy

pytestmark = pytest.mark.parallel

MIB = 1 << 20
WORKLOAD = Workload(64 * MIB, 0.5, 0.5, 65536.0, 2.0)


class FakeReplay:
    """Plays a series of throughputs; remembers how it was called."""

    def __init__(self, rates, failed=0, error="EIO", failed_fileops=0, device=lambda line_bytes: {}):
        self.rates = rates
        self.error = error
        self.failed_fileops = failed_fileops
        self.device = device
        self.failed = failed
        self.calls = []

    def __call__(self, trace, directory, **options):
        self.calls.append({**options, "existed": trace.exists(), "trace": trace, "directory": directory})
        elapsed = 0.0
        if options.get("on_interval"):
            for index, rate in enumerate(self.rates, 1):
                elapsed = 0.05 * index
                line_bytes = rate * 0.05
                line = {"t_s": elapsed, "bytes": line_bytes, "requests": line_bytes / 65536, **self.device(line_bytes)}
                if elapsed >= options["max_seconds"] or options["on_interval"](line):
                    break
        counts = {self.error: self.failed, "EINVAL": self.failed_fileops}
        return {
            "operations": {
                "io": {"failed": self.failed, "short": 0},
                "fileop": {"failed": self.failed_fileops, "short": 0},
            },
            "errors": {name: count for name, count in counts.items() if count},
            "response_time": {"read": {"mean_ns": 5.0}, "write": {"mean_ns": 7.0}, "sync": {"mean_ns": 9.0}},
            "passes": 2.5,
            "elapsed_s": elapsed,
        }


class FakeGroup:
    limit_bytes = 16 * MIB


def note_trace(workload, path, requests, seed):
    path.write_text(f"{workload} {requests} {seed}")


def run(replay, tmp_path, **options):
    return measure(WORKLOAD, tmp_path, make_trace=note_trace, replay=replay, **options)


def quiet(rate, count=600):
    return [rate * (1.01 if index % 2 else 0.99) for index in range(count)]


def test_processes_keep_step(tmp_path):
    """Within a sixteenth of their files: 32 MiB of each, in requests of 64 KiB."""
    replay = FakeReplay(quiet(1e8))
    run(replay, tmp_path)
    assert replay.calls[-1]["lead"] == 32 == lead_of(WORKLOAD)
    assert lead_of(WORKLOAD.replace(process_num=1.0)) is None
    assert lead_of(WORKLOAD.replace(size_mean=512.0)) == LEAD_MAX
    assert lead_of(WORKLOAD.replace(size_mean=1048576.0)) == LEAD_MIN


@pytest.mark.parametrize(("cache_bytes", "cached_bytes"), [(16 * MIB, 8 * MIB), (256 * MIB, 32 * MIB)])
@pytest.mark.parametrize("seq_frac", [0.5, 0.9])
def test_a_point_begins_with_equal_shares_of_every_file_in_the_cache(tmp_path, cache_bytes, cached_bytes, seq_frac):
    path = tmp_path / "trace"
    write_willy(WORKLOAD.replace(seq_frac=seq_frac), path, 20_000, 1, cache_bytes=cache_bytes)
    trace = characterize.open(path)
    assert trace.files["size_bytes"].tolist() == [32 * MIB] * 2
    assert trace.files["resident_bytes"].tolist() == [cached_bytes] * 2
    # Of short runs what was used last, wherever it lies; of long ones the first part.
    scattered = cached_bytes < 32 * MIB and seq_frac == 0.5
    assert (len(trace.resident) > 20) == scattered
    if scattered:
        sums = trace.resident.groupby("file")["bytes"].sum()
        assert sums.tolist() == pytest.approx([cached_bytes] * 2, rel=0.01)


def test_image_is_prepared_outside_the_group_and_run_inside(tmp_path):
    replay = FakeReplay(quiet(1e9))
    group = FakeGroup()
    run(replay, tmp_path, memory_group=group)
    prepare, measured = replay.calls
    assert prepare["phase"] == "prepare"
    assert prepare.get("memory_group") is None
    assert (measured["phase"], measured["cache"], measured["loop"]) == ("run", "recorded", True)
    assert measured["memory_group"] is group
    assert prepare["existed"]
    assert not measured["trace"].exists()  # it is removed when the point is measured


def test_share_of_bytes_that_reached_storage_is_that_of_the_steady_window(tmp_path):
    def device(line_bytes):
        # At first everything is read in, in the steady state a quarter; writes go out once.
        return {"device_read_bytes": line_bytes * (1 if line_bytes < 5e7 / 2 else 0.25), "dirtied_bytes": 1e6, **given}

    given = {}
    point = run(FakeReplay([2e8] * 10 + quiet(1e9), device=device), tmp_path)
    assert point.device_frac == pytest.approx(0.25 + 1e6 / 5e7, rel=0.02)
    assert point.device_write_frac == pytest.approx(1e6 / 5e7, rel=0.02)
    assert point.dirtied_frac == pytest.approx(1e6 / 5e7, rel=0.02)
    for given_bytes, written_bytes in ((0.4e6, 0.4e6), (3e6, 1e6)):
        # Of a large folio not all is written; what else the device is given is not this replay's data.
        given = {"device_write_bytes": given_bytes, "device_reads": 13, "device_writes": 7}
        other = run(FakeReplay([2e8] * 10 + quiet(1e9), device=device), tmp_path)
        assert other.device_write_frac == pytest.approx(written_bytes / 5e7, rel=0.02)
        assert other.device_frac == pytest.approx(0.25 + written_bytes / 5e7, rel=0.02)
        assert other.dirtied_frac == point.dirtied_frac
    assert (point.device_reads, point.device_writes) == (None, None)
    assert other.device_reads / other.device_writes == pytest.approx(13 / 7)
    assert other.device_reads == pytest.approx(13 / (5e7 / 65536), rel=0.02)
    kept = Point.from_document(json.loads(json.dumps(other.as_document())))
    assert kept.as_document() == other.as_document()


def test_share_that_reached_storage_is_unknown_where_the_kernel_does_not_count(tmp_path):
    assert run(FakeReplay(quiet(1e9)), tmp_path).device_frac is None


def test_steady_series_stops_early_with_its_throughput(tmp_path):
    point = run(FakeReplay(quiet(1e9)), tmp_path)
    assert point.steady
    assert point.throughput_bytes_per_s == pytest.approx(1e9, rel=0.01)
    assert point.elapsed_s < 3
    low, high = point.interval90_bytes_per_s
    assert low < point.throughput_bytes_per_s < high
    assert high - point.throughput_bytes_per_s < point.ci95_half_width_bytes_per_s
    assert point.response_time == {"read": {"mean_ns": 5.0}, "write": {"mean_ns": 7.0}, "sync": {"mean_ns": 9.0}}
    assert point.passes == 2.5


def test_unsteady_series_runs_to_the_cap_and_says_so(tmp_path):
    rising = [1e8 * (1 + index / 20) for index in range(600)]
    point = run(FakeReplay(rising), tmp_path, max_seconds=6.0)
    assert not point.steady
    assert point.reason
    assert point.elapsed_s == pytest.approx(6.0)


def test_writes_into_a_cache_of_16_mib_are_measured_behind_what_it_absorbs(tmp_path):
    absorbed = 16 * MIB / 0.5
    rates = quiet(2e7, 600)
    point = run(FakeReplay(rates), tmp_path, memory_group=FakeGroup(), max_seconds=20.0)
    assert point.elapsed_s >= absorbed / 2e7
    assert point.steady


@pytest.mark.parametrize("access", [Access(sync_frac=1.0), Access(dsync=True)])
def test_synced_writes_leave_nothing_for_the_cache_to_absorb(tmp_path, access):
    point = run(FakeReplay(quiet(2e7)), tmp_path, memory_group=FakeGroup(), min_seconds=0.4, access=access)
    assert point.steady
    assert point.elapsed_s < 16 * MIB / 2e7


@pytest.mark.parametrize(("sync_frac", "dsync"), [(0.0, False), (0.1, False), (1.0, False), (0.0, True)])
def test_so_many_writes_are_followed_by_a_sync_of_their_file(tmp_path, sync_frac, dsync):
    found = []

    class Reads(FakeReplay):
        def __call__(self, trace, directory, **options):
            found.append(characterize.open(trace))
            return super().__call__(trace, directory, **options)

    measure(WORKLOAD, tmp_path, replay=Reads(quiet(1e9)), access=Access(sync_frac=sync_frac, dsync=dsync))
    io, syncs = found[-1].arrays[RecordKind.IO], found[-1].arrays[RecordKind.FILEOP]
    writes = io[io["op"] == IoOp.WRITE]
    assert len(syncs) == round(sync_frac * len(writes))
    assert set(syncs["op"].tolist()) <= {int(Fileop.FDATASYNC)}
    synced = set(zip(syncs["start_ns"] - 1, syncs["thread"], syncs["file"], strict=True))
    assert synced <= set(zip(writes["start_ns"], writes["thread"], writes["file"], strict=True))
    assert ((writes["flags"] & IoFlag.DSYNC) != 0).all() == dsync
    assert not (io[io["op"] == IoOp.READ]["flags"] & IoFlag.DSYNC).any()


@pytest.mark.parametrize(("error", "remedy"), [("EIO", "look into the kernel's log"), ("ENOSPC", "make room there")])
def test_failed_requests_are_no_point(tmp_path, error, remedy):
    said = rf"cannot measure uniqueBytes 64 MiB, .*: of its requests 3 failed .*\(3 {error}\); {remedy}"
    with pytest.raises(FlextraceError, match=said):
        run(FakeReplay(quiet(1e9), failed=3, error=error), tmp_path)


def test_failed_file_operations_are_said_of_a_point(tmp_path):
    """A directory that cannot be synced is no reason to measure nothing."""
    point = run(FakeReplay(quiet(1e9), failed_fileops=2), tmp_path)
    assert not point.steady
    assert point.reason == "of its file operations 2 failed or were short (2 EINVAL)"
    assert point.throughput_bytes_per_s == pytest.approx(1e9, rel=0.05)


def test_lees_rule_by_name(tmp_path):
    point = run(FakeReplay(quiet(1e9)), tmp_path, rule="raidperf")
    assert point.steady


@pytest.mark.parametrize("unique", [1 * MIB, 100 * MIB, 10_000 * MIB, 1e12])
@pytest.mark.parametrize("size", [4096, 65536, 1 << 20])
@pytest.mark.parametrize("seconds", [0.5, 5, 60])
def test_a_repeated_trace_goes_four_times_over_its_bytes_and_another_is_not_repeated(unique, size, seconds):
    requests, loop = trace_length(Workload(unique, 0.5, 0.5, size, 1), seconds)
    synced, _ = trace_length(Workload(unique, 0.5, 0.5, size, 1), seconds, sync_frac=1.0)
    assert synced * 1.5 <= REQUESTS_MAX  # syncs are records, too
    assert requests <= REQUESTS_MAX
    if loop:
        assert requests * size >= 4 * unique
    else:
        assert requests == REQUESTS_MAX or requests >= seconds * 1_000_000


@pytest.mark.parametrize(("read_frac", "written_share"), [(0.0, 0.97), (0.5, 0.97), (0.95, 0.97), (0.99, 0.6)])
def test_a_pass_writes_nearly_every_block_also_where_few_requests_write(read_frac, written_share):
    workload = Workload(83 * MIB, 0.0, read_frac, 4096, 2)
    requests, loop = trace_length(workload, 3.5)
    assert loop
    trace = make_trace(workload, requests=requests, seed=7, allow_partial=True)
    io = trace.arrays[RecordKind.IO]
    writes = io[io["op"] == IoOp.WRITE]
    assert len(np.unique(writes[["file", "offset"]])) >= written_share * 83 * MIB / 4096


@pytest.mark.parametrize(
    ("read_frac", "unique", "limit", "dirty", "expected"),
    [
        (1.0, 100, 50, 20, 0),  # nothing is written
        (0.0, 100, 50, 20, 22.314),  # the kernel throttles at 20 dirty bytes: 22 random writes of 1 make so many
        (0.0, 24, 50, 20, 43.002),  # many writes meet dirty bytes: the last of 20 come slowly
        (0.0, 20.001, 50, 20, 80),
        (0.5, 100, 50, 80, 138.63),  # half of the bytes fill the cache of 50
        (0.5, 10, 50, 80, 20),  # the working set is dirty as a whole
        (0.95, 100, 50, 80, 277.26),  # behind the cache never more than four times what is absorbed
        (0.95, 40, 50, 20, 554.52),  # within it nothing but writes fills it with dirty pages
    ],
)
def test_settle_bytes_by_hand(read_frac, unique, limit, dirty, expected):
    assert settle_bytes(Workload(unique, 0.5, read_frac, 4, 1), limit, dirty) == pytest.approx(expected, rel=1e-4)


def test_its_trace_lies_in_memory_where_that_has_plenty(tmp_path, monkeypatch):
    replay = FakeReplay(quiet(1e9))
    run(replay, tmp_path)
    assert replay.calls[-1]["trace"].is_relative_to("/dev/shm")
    monkeypatch.setattr(scratch, "MEMORY_SHARE", 0)
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    run(replay, tmp_path)
    assert replay.calls[-1]["trace"].is_relative_to(place)


def test_point_survives_json(tmp_path):
    point = run(FakeReplay(quiet(1e9)), tmp_path)
    assert Point.from_document(json.loads(json.dumps(point.as_document(), allow_nan=False))) == point
    short = run(FakeReplay(quiet(1e9, 3)), tmp_path)
    document = json.loads(json.dumps(short.as_document(), allow_nan=False))
    assert document["ci95_half_width_bytes_per_s"] is None
    assert Point.from_document(document).ci95_half_width_bytes_per_s == math.inf
    assert not short.steady

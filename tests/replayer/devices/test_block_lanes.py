# SPDX-License-Identifier: Apache-2.0
"""Block requests in lanes, and their places on a device of another size; against naive implementations."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import characterize
from characterize.errors import FlextraceError
from characterize.layout import BlockFlag, BlockForm, BlockOp, Fileop, FileType, HeaderFlag, IoFlag, IoOp, RecordKind
from characterize.stream import stream_of
from characterize.workload import Workload
from replayer.devices.block_lanes import BlockOperations, Lanes
from replayer.devices.device_places import Geometry, fit_places
from replayer.devices.device_trace import make_device_trace
from replayer.willy import make_trace
from tests.traces.made_trace import made_trace, read, write
from tests.truths.straced import op

pytestmark = pytest.mark.parallel

DEVICE = Geometry(64 << 20, 4096)
CHUNKS = (1, 7, 10**6)
requests = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), min_size=1, max_size=80)


def lanes_of(start, duration, step=10**6):
    lanes, every = Lanes(), [np.zeros(0, np.int64)]
    every += [lanes.add(start[at : at + step], duration[at : at + step]) for at in range(0, len(start), step)]
    assert lanes.used == len(set(np.concatenate(every)))
    return np.concatenate(every)


def operations_of(trace, *arguments, step=3, **options):
    """All of `BlockOperations` at once."""
    found = BlockOperations(stream_of(trace, step), *arguments, **options)
    io, fileops = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
    return SimpleNamespace(**vars(found), io=io, fileops=fileops)


def device_trace(trace, tmp_path, geometry=DEVICE, step=3, **options):
    """The device trace as it was written, and what was noted."""
    path = tmp_path / "device.iotrace"
    path.unlink(missing_ok=True)
    notes = make_device_trace(stream_of(trace, step), path, geometry, **options)
    made = characterize.open(path)
    assert made.header.metadata["device_trace"] == notes
    return made, notes


def naive_lanes(start, duration):
    """Of the lanes that are free, the one that became free last; of several, the one of the later request."""
    ends, lanes = [], []  # of each lane: its last end, and the request that it is of
    for request, (begin, length) in enumerate(zip(start, duration, strict=True)):
        free = [(end, last, lane) for lane, (end, last) in enumerate(ends) if end <= begin]
        # An instant gives its lane back at once, after all that had ended.
        lane = max(free)[2] if free else len(ends)
        if lane == len(ends):
            ends.append(None)
        ends[lane] = (begin + length, request)
        lanes.append(lane)
    return lanes


@given(requests)
def test_lanes_are_the_fewest_in_which_nothing_overlaps(rows):
    start, duration = (np.array(column) for column in zip(*sorted(rows, key=lambda row: row[0]), strict=True))
    lanes = lanes_of(start, duration)
    for lane in np.unique(lanes):
        mine = lanes == lane
        assert (start[mine][1:] >= (start + duration)[mine][:-1]).all()
    moments = np.arange(90)[:, None] + 0.5
    in_flight = ((start <= moments) & (start + duration > moments)).sum(axis=1).max()
    assert lanes.max() + 1 == max(in_flight, 1) or (duration == 0).any()
    assert sorted(set(lanes)) == list(range(lanes.max() + 1))
    assert lanes.max() + 1 <= max(in_flight, 0) + 1


@given(
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 10**5)), min_size=1, max_size=80, unique_by=lambda r: r[0])
)
def test_a_request_follows_the_completion_that_came_last(rows):
    start, duration = (np.array(column) for column in zip(*sorted(rows), strict=True))
    for step in CHUNKS:
        assert lanes_of(start, duration, step).tolist() == naive_lanes(start.tolist(), duration.tolist())


def block(kind, start, duration=10, sector=0, size=4096, **fields):
    row = {"op": kind, "start_ns": start, "duration_ns": duration, "sector": sector, "bytes": size}
    return {"device": 8 << 20, **row, **fields}


def test_every_kind_of_request_becomes_what_a_program_can_do():
    blocks = [
        block(BlockOp.READ, 100, sector=8),
        block(BlockOp.WRITE, 200, sector=16, flags=BlockFlag.FUA),
        block(BlockOp.WRITE, 300, flags=BlockFlag.PREFLUSH),  # its flush is a request of its own
        block(BlockOp.FLUSH, 400, size=0),
        block(BlockOp.DISCARD, 500, sector=1000, size=1 << 20),
        block(BlockOp.WRITE_ZEROES, 600, sector=2000, size=8192),
        block(BlockOp.SECURE_ERASE, 700, sector=8, size=4096),
        block(BlockOp.ZONE, 800),
        block(BlockOp.OTHER, 900),
        block(BlockOp.READ, 1000, status=10),
        block(BlockOp.WRITE, 1100, form=BlockForm.BIO, flags=BlockFlag.PREFLUSH | BlockFlag.FUA),
    ]
    found = operations_of(made_trace(blocks=blocks[::-1]))
    assert found.left_out == {"other_kinds": 2}
    assert found.source == "8:0"
    assert found.lanes == 1
    direct = IoFlag.DIRECT | IoFlag.POSITIONED
    columns = ["op", "start_ns", "duration_ns", "offset", "asked_bytes", "result", "flags"]
    assert found.io[columns].tolist() == [
        (IoOp.READ, 100, 10, 4096, 4096, 4096, direct),
        (IoOp.WRITE, 200, 10, 8192, 4096, 4096, direct | IoFlag.DSYNC),
        (IoOp.WRITE, 300, 10, 0, 4096, 4096, direct),
        (IoOp.READ, 1000, 10, 0, 4096, -5, direct),
        (IoOp.WRITE, 1101, 9, 0, 4096, 4096, direct | IoFlag.DSYNC),
    ]
    columns = ["op", "start_ns", "duration_ns", "argument", "length", "flags"]
    assert found.fileops[columns].tolist() == [
        (Fileop.FSYNC, 400, 10, 0, 0, 0),
        (Fileop.FALLOCATE, 500, 10, 512_000, 1 << 20, 0x03 << 16),
        (Fileop.FALLOCATE, 600, 10, 1_024_000, 8192, 0x11 << 16),
        (Fileop.FALLOCATE, 700, 10, 4096, 4096, 0x03 << 16),
        (Fileop.FSYNC, 1100, 1, 0, 0, 0),
    ]


def test_the_source_is_chosen_where_there_are_several():
    loop = {"device": 7 << 20, "flags": BlockFlag.STACKED}
    blocks = [block(BlockOp.READ, 1), block(BlockOp.READ, 2, **loop), block(BlockOp.READ, 3, **loop)]
    assert len(operations_of(made_trace(blocks=blocks)).io) == 1
    assert len(operations_of(made_trace(blocks=blocks), "7:0").io) == 2
    blocks.append(block(BlockOp.WRITE, 4, device=8 << 20 | 16))
    with pytest.raises(FlextraceError, match=r"8:0, 8:16, and on top of others 7:0: choose one by --source"):
        operations_of(made_trace(blocks=blocks))
    assert operations_of(made_trace(blocks=blocks), "8:16").source == "8:16"
    with pytest.raises(FlextraceError, match="no requests of device 9:9"):
        operations_of(made_trace(blocks=blocks), "9:9")
    with pytest.raises(FlextraceError, match="no block requests"):
        operations_of(made_trace([read(0, 1)]))
    with pytest.raises(FlextraceError, match="can be repeated"):
        operations_of(made_trace(blocks=[block(BlockOp.ZONE, 1)]))


def test_lanes_by_choice_take_requests_in_turn():
    blocks = [block(BlockOp.READ, at, 0) for at in range(7)]
    assert operations_of(made_trace(blocks=blocks)).lanes == 1
    assert not operations_of(made_trace(blocks=blocks)).timed
    found = operations_of(made_trace(blocks=blocks), lanes=3)
    assert found.io["thread"].tolist() == [1, 2, 3, 1, 2, 3, 1]


places = st.lists(st.tuples(st.integers(0, 1 << 24), st.integers(1, 64)), min_size=1, max_size=50)


@given(places, st.sampled_from(["wrap", "scale"]), st.integers(64, 1 << 16), st.sampled_from([512, 4096]))
def test_fitted_places_are_whole_and_on_the_device(rows, fit, blocks, block_bytes):
    offset, size = (np.array(column) * block_bytes for column in zip(*rows, strict=True))
    device = Geometry(blocks * block_bytes, block_bytes)
    placed = fit_places(offset, size, device, fit)
    assert (placed >= 0).all()
    assert (placed + size <= device.size_bytes).all()
    assert (placed % block_bytes == 0).all()
    if fit == "wrap":
        inside = offset % device.size_bytes + size <= device.size_bytes
        assert (placed[inside] == offset[inside] % device.size_bytes).all()
    else:
        # In the order of the addresses, but for what moves within a stretch.
        order = np.argsort(offset)
        assert (np.diff(placed[order]) > -device.size_bytes // 256 - size.max()).all()


def test_scaled_neighbours_stay_neighbours():
    """A run of 64 KiB requests over 1 TiB, onto 4 GiB: it breaks where a stretch ends, every 4 MiB."""
    offset = np.arange(0, 1 << 40, 1 << 16)[:100_000]
    size = np.full(len(offset), 1 << 16)
    placed = fit_places(offset, size, Geometry(4 << 30, 4096), "scale", 1 << 40)
    sequential = np.diff(placed) == 1 << 16
    assert sequential.mean() > 1 - 1.5 * (1 << 16) / (4 << 20)
    assert placed.max() == pytest.approx(offset.max() / 256, abs=8 << 20)


def test_exact_refuses_what_does_not_fit_and_all_others_a_request_larger_than_the_device(tmp_path):
    place = (np.array([DEVICE.size_bytes - 4096]), np.array([8192]))
    beyond = block(BlockOp.READ, 1, sector=(DEVICE.size_bytes - 4096) >> 9, size=8192)
    with pytest.raises(FlextraceError, match=r"requests of 8:0 .* --fit wrap or scale$") as caught:
        device_trace(made_trace(blocks=[beyond]), tmp_path)
    assert caught.value.exit_code == 2
    for fit in ("wrap", "scale"):
        assert fit_places(*place, DEVICE, fit) <= DEVICE.size_bytes - 8192
        with pytest.raises(FlextraceError, match="a request has"):
            fit_places(np.array([0]), np.array([DEVICE.size_bytes + 1]), DEVICE, fit)


def test_direct_requests_are_widened_to_whole_blocks(tmp_path):
    blocks = [block(BlockOp.READ, 1, sector=3, size=512), block(BlockOp.DISCARD, 20, sector=9, size=512)]
    made, notes = device_trace(made_trace(blocks=blocks), tmp_path)
    io, fileops = made.arrays[RecordKind.IO], made.arrays[RecordKind.FILEOP]
    assert io[["offset", "asked_bytes", "result"]].tolist() == [(0, 4096, 4096)]
    assert fileops[["argument", "length"]].tolist() == [(4096, 4096)]
    assert notes["aligned"] == 2
    assert notes["moved"] == 0
    assert made.header.flags == HeaderFlag.PLANNED


def test_what_programs_did_on_devices_is_repeated_as_it_was(tmp_path):
    """Two devices, one behind the other; what was done on other files is left out and counted."""
    files = [
        {"file": 1, "type": FileType.BLOCK_DEVICE, "size_bytes": 1 << 20},
        {"file": 2, "type": FileType.BLOCK_DEVICE, "size_bytes": 1 << 20},
        {"file": 3, "size_bytes": 10},
    ]
    io = [read(5, 100, 1), write(4096, 512, 5, file=2, thread=9), read(0, 0, 9, file=3, asked_bytes=100)]
    fileops = [
        op(Fileop.FSYNC, 20, file=2),
        op(Fileop.SYNC_FILE_RANGE, 30, file=2, argument=4096, length=512),
        op(Fileop.CLOSE, 40, file=3),
    ]
    trace = made_trace(io, fileops=fileops, files=files, blocks=[block(BlockOp.READ, 1)])
    made, notes = device_trace(trace, tmp_path)
    assert notes["layer"] == "vfs"
    assert notes["left_out"] == {"other_files": 2}
    rows = made.arrays[RecordKind.IO][["file", "offset", "asked_bytes", "thread", "flags"]].tolist()
    assert rows == [(1, 5, 100, 1, 0), (1, (1 << 20) + 4096, 512, 9, 0)]
    assert made.arrays[RecordKind.FILEOP][["file", "argument"]].tolist() == [(1, 0), (1, (1 << 20) + 4096)]
    # What reached a device, by choice, or where data was moved of other files as well.
    assert device_trace(trace, tmp_path, layer="block")[1]["layer"] == "block"
    mixed = made_trace([*io, read(0, 5, 11, file=3)], files=files, blocks=[block(BlockOp.READ, 1)])
    assert device_trace(mixed, tmp_path)[1]["layer"] == "block"
    with pytest.raises(FlextraceError, match="give --layer block"):
        device_trace(trace, tmp_path, lanes=5)


def test_willy_on_a_raw_device(tmp_path):
    """Thesis 4.5.1.6: its files end to end, without a cache between."""
    workload = Workload(unique_bytes=16 << 20, size_mean=16384, read_frac=0.5, seq_frac=0.5, process_num=3)
    trace = make_trace(workload, requests=3001, seed=1)
    made, notes = device_trace(trace, tmp_path)
    io, before = made.arrays[RecordKind.IO], trace.arrays[RecordKind.IO]
    assert notes["layer"] == "vfs"
    assert made.header.flags == HeaderFlag.UNTIMED
    assert (io["flags"] & IoFlag.DIRECT).all()
    assert (io["thread"] == before["thread"]).all()
    ends = [0]
    for file in (1, 2, 3):
        mine = before["file"] == file
        shift = io["offset"][mine] - before["offset"][mine]
        assert len(np.unique(shift)) == 1
        assert shift[0] == ends[-1]
        ends.append(int((io["offset"] + io["asked_bytes"])[mine].max()))
    assert ends[-1] <= (16 << 20) + 3 * 4096
    with pytest.raises(FlextraceError, match="too small"):
        device_trace(trace, tmp_path, Geometry(8 << 20, 4096))

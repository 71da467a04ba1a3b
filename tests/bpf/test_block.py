# SPDX-License-Identifier: Apache-2.0
"""BLOCK and BLOCK_DATA records against the kernel's statistics of the device and the file systems' own maps."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from characterize.layout import BlockDataClass, BlockFlag, BlockForm, BlockOp
from tests.machines.block_device import (
    SECTOR_BYTES,
    BlockDevice,
    btrfs_chunks,
    loop_device,
    mounted,
    partition,
    run,
    zram_device,
)
from tests.machines.kernel import has_tracepoint
from tests.machines.own_group import made_group
from tests.truths import recorded_requests
from tests.truths.recorded_requests import (
    CLASS_OF_WAY,
    FILE_BYTES,
    WAYS,
    Run,
    adds_up,
    agrees,
    are_caused,
    are_placed,
    is_covered,
    make_cold,
    pieces_of,
)

DEVICE_BYTES = 512 << 20

pytestmark = pytest.mark.records


def record(device: BlockDevice, trace_path: Path, *command: str | Path) -> Run:
    (only,) = recorded_requests.record(trace_path, [device], " ".join(map(str, command)))
    return only


@pytest.fixture(scope="module", params=["ext4", "xfs", "btrfs"])
def system(request, tmp_path_factory):
    """A file system and its device."""
    directory = tmp_path_factory.mktemp(request.param)
    with (
        loop_device(directory / "image", DEVICE_BYTES) as device,
        mounted(request.param, device, directory / "place") as place,
    ):
        yield request.param, device, place


@pytest.mark.parametrize("way", WAYS)
def test_each_piece_of_a_file_is_where_the_file_system_put_it(system, tmp_path, way):
    kind, device, place = system
    if kind == "btrfs" and "direct" in way and not has_tracepoint("iomap_dio_rw_begin"):
        pytest.xfail("named limit: btrfs before 6.6 splits direct I/O without a trace of the place in the file")
    file = place / way
    if "read" in way:
        make_cold(file)
    recorded = record(device, tmp_path / "trace", WAYS[way].format(file=file))

    agrees(recorded)
    is_covered(recorded)
    pieces = pieces_of(recorded, way)
    if kind == "btrfs" and CLASS_OF_WAY[way] == BlockDataClass.DIRECT and "read" in way:
        # It reads through the cache where the buffer has no pages yet, and reads ahead, and reads some twice.
        assert set(pieces["class"]) <= {BlockDataClass.DIRECT, BlockDataClass.FILL}
        assert pieces["bytes"].sum() >= FILE_BYTES
    else:
        assert set(pieces["class"]) == {CLASS_OF_WAY[way]}
        assert adds_up(recorded, pieces, FILE_BYTES)
    are_placed(pieces, file, btrfs_chunks(device) if kind == "btrfs" else [])
    are_caused(pieces, recorded.trace.io.set_index("id"))


SEND_DIRECTLY = """
import os, sys
source = os.open(sys.argv[1], os.O_RDONLY)
target = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_DIRECT)
while os.sendfile(target, source, None, 1 << 20):
    pass
"""


def test_what_sendfile_writes_directly_is_not_of_the_file_that_it_reads(system, tmp_path):
    """Though its pages are, which the program has written before."""
    kind, device, place = system
    if kind == "btrfs":
        pytest.skip("a named limit: what bypasses the cache is of no file there")
    source, target = place / "source", place / "target"
    (tmp_path / "send").write_text(SEND_DIRECTLY)
    make = f"dd if=/dev/urandom of={source} bs=1M count={FILE_BYTES >> 20} conv=fsync;"
    recorded = record(device, tmp_path / "trace", make, f"python3 -I {tmp_path}/send {source} {target}")
    agrees(recorded)
    is_covered(recorded)
    assert adds_up(recorded, pieces_of(recorded, "source"), FILE_BYTES)
    pieces = pieces_of(recorded, "target")
    assert set(pieces["class"]) == {BlockDataClass.DIRECT}
    assert adds_up(recorded, pieces, FILE_BYTES)
    are_placed(pieces, target, [])
    are_caused(pieces, recorded.trace.io.set_index("id"))


def test_many_small_files_and_an_fsync_of_each(system, tmp_path):
    _, device, place = system
    script = f"for i in $(seq 40); do dd if=/dev/urandom of={place}/small$i bs=4k count=$i conv=fsync; done"
    recorded = record(device, tmp_path / "trace", script)
    agrees(recorded)
    is_covered(recorded)
    assert len(recorded.of(BlockOp.FLUSH)) == recorded.counted["flushes"]
    by_file = pieces_of(recorded, "small7")
    assert adds_up(recorded, by_file, 7 * 4096)
    assert set(by_file["class"]) == {BlockDataClass.WRITEBACK}


def test_the_trace_itself_stays_out(system):
    """But not the metadata that the file system writes because of it."""
    kind, device, place = system
    if kind == "btrfs" and not has_tracepoint("iomap_dio_rw_begin"):
        pytest.xfail("named limit: of btrfs before 6.6 the trace's own pages look like those of an untraced program")
    recorded = record(device, place / "own.iotrace", "dd if=/dev/zero of=/dev/null bs=4k count=2000")
    assert pieces_of(recorded, "own.iotrace").empty
    classes = set(recorded.pieces["class"])
    assert classes <= {BlockDataClass.METADATA, BlockDataClass.JOURNAL}


@pytest.fixture
def loop(tmp_path):
    with loop_device(tmp_path / "image", 64 << 20) as device:
        yield device


def test_a_disk_without_a_file_system(loop, tmp_path):
    node = loop.path
    recorded = record(
        loop,
        tmp_path / "trace",
        f"dd if=/dev/zero of={node} bs=256k count=32 seek=7 oflag=direct;",
        f"dd if={node} of=/dev/null bs=64k count=64 skip=3 iflag=direct;",
        f"dd if=/dev/urandom of={node} bs=1M count=4 seek=40 conv=fsync;",
        f"blkdiscard -o 1048576 -l 2097152 {node}; blkdiscard -z -o 8388608 -l 1048576 {node}",
    )
    agrees(recorded, zeroed_bytes=1 << 20)
    assert recorded.of(BlockOp.DISCARD)["bytes"].sum() == recorded.counted["discard_bytes"] == 2 << 20
    zeroes = recorded.of(BlockOp.WRITE_ZEROES)
    assert zeroes["bytes"].sum() == 1 << 20
    assert zeroes["sector"].min() == 8388608 // SECTOR_BYTES
    data = recorded.pieces[recorded.pieces["file"] > 0]
    assert (data["offset"] == data["sector"] * SECTOR_BYTES).all()
    sizes = data.groupby("class")["bytes"].sum()
    assert sizes[BlockDataClass.DIRECT] == (32 * 256 + 64 * 64) << 10
    assert sizes[BlockDataClass.WRITEBACK] == 4 << 20


def test_a_request_waits_in_the_queue_from_its_own_start_on(loop, tmp_path):
    """One at a time: each was queued after the one before had ended, whatever request the kernel uses again for it."""
    recorded = record(loop, tmp_path / "trace", f"dd if=/dev/zero of={loop.path} bs=64k count=200 oflag=direct;")
    blocks = recorded.blocks[recorded.blocks["thread"] == recorded.blocks["thread"].mode()[0]]
    blocks = blocks.sort_values("start_ns")
    assert len(blocks) >= 200
    ends = (blocks["start_ns"] + blocks["duration_ns"]).to_numpy()[:-1]
    queued = (blocks["start_ns"] - blocks["queued_ns"].astype("int64")).to_numpy()[1:]
    assert (queued >= ends).all()


def test_a_request_that_is_done_in_parts_and_fails(tmp_path):
    """Of a loop device whose file has become shorter: the first part can be read, the rest is tried again in vain."""
    size, part = 1 << 20, 3 * 4096
    with loop_device(tmp_path / "image", 2 * size, "--direct-io=on") as device:
        os.truncate(tmp_path / "image", size + part)
        recorded = record(
            device,
            tmp_path / "trace",
            f"dd if={device.path} of=/dev/null bs=64k skip=16 count=1 iflag=direct || test $? = 1",
        )
        os.truncate(tmp_path / "image", 2 * size)
    requests = recorded.blocks[recorded.blocks["sector"] == size // SECTOR_BYTES]
    assert requests["bytes"].tolist() == [65536]
    if not (requests["flags"] & int(BlockFlag.PARTIAL)).any():
        pytest.skip("this kernel does not read loop devices in parts")
    assert (requests["flags"] & int(BlockFlag.REQUEUED)).all()
    assert (requests["status"] != 0).all()
    piece = recorded.pieces[recorded.pieces["block"] == requests.index[0]]
    assert piece[["offset", "bytes"]].to_numpy().tolist() == [[size, 65536]]


def test_a_partition_is_part_of_its_disk(loop, tmp_path):
    first = 4096
    with partition(loop, first) as node:
        recorded = record(loop, tmp_path / "trace", f"dd if=/dev/zero of={node} bs=64k count=16 seek=5 oflag=direct")
    data = recorded.pieces[recorded.pieces["class"] == BlockDataClass.DIRECT]
    assert data["bytes"].sum() == 16 * 65536
    assert data["offset"].min() == 5 * 65536
    assert (data["sector"] * SECTOR_BYTES == data["offset"] + first * SECTOR_BYTES).all()


def test_requests_that_were_merged_name_each_cause(system, tmp_path):
    """Pages that lie side by side on the device, written by different operations far apart."""
    _, device, place = system
    file = place / "merged"
    run("dd", "if=/dev/zero", f"of={file}", "bs=1M", "count=8", "conv=fsync")
    script = f"for i in 6 4 2 0 7 5 3 1; do dd if=/dev/urandom of={file} bs=1M count=1 seek=$i conv=notrunc; done"
    recorded = record(device, tmp_path / "trace", script)
    agrees(recorded)
    is_covered(recorded)
    pieces = pieces_of(recorded, "merged")
    causes = recorded.trace.io.set_index("id").loc[pieces["cause"]]
    assert (causes["offset"].to_numpy() >> 20 == pieces["offset"].to_numpy() >> 20).all()
    assert pieces["thread"].nunique() == 8
    # Of this file: two writes of the journal merge into one piece.
    merged = (recorded.blocks.loc[pieces["block"].unique(), "flags"] & int(BlockFlag.MERGED)) > 0
    assert pieces.groupby("block").size().max() > 1 or not merged.any()


@pytest.mark.parametrize("way", WAYS)
def test_a_device_without_requests(tmp_path, way):
    with zram_device(128 << 20) as device, mounted("ext4", device, tmp_path / "place") as place:
        file = place / way
        if "read" in way:
            make_cold(file)
        recorded = record(device, tmp_path / "trace", WAYS[way].format(file=file))
        agrees(recorded)
        is_covered(recorded)
        assert set(recorded.blocks["form"]) == {BlockForm.BIO}
        pieces = pieces_of(recorded, way)
        assert pieces["bytes"].sum() == FILE_BYTES
        assert set(pieces["class"]) == {CLASS_OF_WAY[way]}
        are_placed(pieces, file, [])
        are_caused(pieces, recorded.trace.io.set_index("id"))


THROTTLED = Path("/sys/fs/cgroup/blkio")


@pytest.mark.skipif(
    not (THROTTLED / "blkio.throttle.read_bps_device").exists(), reason="needs the blkio controller of version 1"
)
def test_what_a_control_group_holds_back_is_not_taken_for_the_doing_of_others(tmp_path):
    """A thread of the kernel submits it when its time has come."""
    with (
        loop_device(tmp_path / "image", DEVICE_BYTES) as device,
        mounted("ext4", device, tmp_path / "place") as place,
        made_group(THROTTLED) as group,
    ):
        make_cold(place / "file")
        (group / "blkio.throttle.read_bps_device").write_text(f"{device.name} {FILE_BYTES // 2}")
        held = record(device, tmp_path / "t", f"echo $$ >{group}/cgroup.procs; cat {place}/file >/dev/null")
    pieces = pieces_of(held, "file")
    assert pieces["bytes"].sum() == FILE_BYTES
    assert set(pieces["class"]) == {BlockDataClass.FILL}
    blocks = held.blocks.loc[pieces["block"]]
    assert not set(blocks["process"]) <= set(held.trace.tasks["process"])

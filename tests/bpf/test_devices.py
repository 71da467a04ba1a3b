# SPDX-License-Identifier: Apache-2.0
"""Records of disks of many kinds, of disks made of disks, of errors and of operations that move no data.

The truth is what programs did with known numbers, and what the kernel counted (/sys/block/DISK/stat).
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import characterize
from characterize.layout import BlockDataClass, BlockFlag, BlockForm, BlockOp, IoOp, RecordKind
from characterize.requests import block_records
from tests.machines import made_devices as made
from tests.machines.block_device import SECTOR_BYTES, BlockDevice, loop_device, mounted, run, zram_device
from tests.truths.recorded_requests import (
    CLASS_OF_WAY,
    FILE_BYTES,
    WAYS,
    Run,
    agrees,
    are_caused,
    are_placed,
    is_covered,
    make_cold,
    pieces_of,
    record,
)
from tests.truths.told import run_recorder

SIZE_BYTES = 64 << 20
STATUS_OF_ERRNO_5 = 10  # BLK_STS_IOERR
STATUS_MEDIUM = 7  # BLK_STS_MEDIUM
LOOP_MAJOR = 7  # Documentation/admin-guide/devices.txt
FIRST_SECTOR = 2056  # of a mapped disk, on the one below

# Direct writes, direct reads, and writes through the cache, in numbers that are prime.
WRITTEN, READ, CACHED = 83 * 12288, 101 * 20480, 5 << 20
LOAD = (
    "dd if=/dev/zero of={node} bs=12k count=83 seek=7 oflag=direct;"
    "dd if={node} of=/dev/null bs=20k count=101 iflag=direct;"
    "dd if=/dev/urandom of={node} bs=1M count=5 seek=20 conv=fsync"
)

pytestmark = pytest.mark.records

DISKS = {
    "loop": lambda place: loop_device(place / "image", SIZE_BYTES),
    "zram": lambda place: zram_device(SIZE_BYTES),
    "nvme": lambda place: made.nvme_disk(),
    "scsi": lambda place: made.scsi_disk(),
    "null_blk": lambda place: made.null_block(queue_mode=2, discard=1, cache_size=16),
    "null_blk-bio": lambda place: made.null_block(queue_mode=0),
}
BIO_FORMS = {"zram", "null_blk-bio"}


@dataclass
class Stack:
    """A disk that is made of others."""

    top: BlockDevice
    below: list[BlockDevice]
    copies: int = 1  # of what is written


@contextlib.contextmanager
def stack(kind: str) -> Iterator[Stack]:
    with contextlib.ExitStack() as opened:
        if kind == "linear-on-nvme":
            below = [opened.enter_context(made.nvme_disk())]
            top = opened.enter_context(made.linear(below[0], FIRST_SECTOR))
        elif kind == "delay-on-null_blk":
            below = [opened.enter_context(made.null_block(queue_mode=2))]
            top = opened.enter_context(made.mapped(f"0 {made.sectors_of(below[0])} delay {below[0].path} 0 3"))
        else:
            below = [opened.enter_context(made.null_block(queue_mode=2)) for _ in range(2)]
            top = opened.enter_context(made.raid(int(kind[-1]), *below))
        yield Stack(top, below, copies=2 if kind == "raid1" else 1)


@pytest.mark.parametrize("kind", DISKS)
def test_a_disk_moves_what_it_was_asked_for(kind, tmp_path):
    with DISKS[kind](tmp_path) as disk:
        (recorded,) = record(tmp_path / "trace", [disk], LOAD.format(node=disk.path))
    # Without requests null_blk counts nothing of what it does (/sys/block/DISK/stat stays zero).
    if kind != "null_blk-bio":
        agrees(recorded)
    assert recorded.of(BlockOp.WRITE)["bytes"].sum() == WRITTEN + CACHED
    assert recorded.of(BlockOp.READ)["bytes"].sum() >= READ
    is_covered(recorded)
    assert set(recorded.blocks["form"]) == {BlockForm.BIO if kind in BIO_FORMS else BlockForm.REQUEST}
    assert not recorded.blocks["status"].any()
    sizes = recorded.pieces.groupby("class")["bytes"].sum()
    assert sizes[BlockDataClass.DIRECT] == WRITTEN + READ
    assert sizes[BlockDataClass.WRITEBACK] == CACHED
    direct = recorded.pieces[recorded.pieces["class"] == BlockDataClass.DIRECT]
    assert (direct["offset"] == direct["sector"] * SECTOR_BYTES).all()
    are_caused(direct, recorded.trace.io.set_index("id"))


@pytest.mark.parametrize("kind", ["linear-on-nvme", "delay-on-null_blk", "raid0", "raid1"])
def test_what_a_disk_made_of_disks_moves_counts_once(kind, tmp_path):
    with stack(kind) as made_of:
        top, *below = record(tmp_path / "trace", [made_of.top, *made_of.below], LOAD.format(node=made_of.top.path))
        numbers = [device.number for device in made_of.below]
    is_covered(top)
    for recorded in below:
        agrees(recorded)
        # dm-delay hands on what it was given from a thread of the kernel, where nothing tells whose it was.
        if kind != "delay-on-null_blk":
            is_covered(recorded)
    # md counts each part of what it splits.
    assert top.counted["write_bytes"] == top.of(BlockOp.WRITE)["bytes"].sum()
    assert top.counted["writes"] >= len(top.of(BlockOp.WRITE))
    assert (top.blocks["flags"] & int(BlockFlag.STACKED)).all()
    assert top.of(BlockOp.WRITE)["bytes"].sum() == WRITTEN + CACHED
    assert top.of(BlockOp.READ)["bytes"].sum() >= READ

    counted = block_records(top.trace)
    assert not np.isin(counted["device"], top.blocks["device"].unique()).any()
    counted = counted[np.isin(counted["device"], numbers)]
    written = counted["bytes"][counted["op"] == BlockOp.WRITE].sum()
    assert written == made_of.copies * (WRITTEN + CACHED) == sum(one.counted["write_bytes"] for one in below)
    # Who looks at the disk when it is closed (for a partition table) is not recorded, but counted by the kernel.
    read = counted["bytes"][counted["op"] == BlockOp.READ].sum()
    assert READ <= read <= sum(one.counted["read_bytes"] for one in below)


def test_a_disk_of_several_paths_counts_once(tmp_path):
    """On its path, a disk that the kernel hides."""
    with made.null_block(queue_mode=2) as backing, made.nvme_of_several_paths(backing) as disk:
        (top,) = record(tmp_path / "trace", [disk], LOAD.format(node=disk.path))
        counted = block_records(top.trace)
        hidden = [it for it in set(counted["device"]) if not Path(f"/sys/dev/block/{it >> 20}:{it & 0xFFFFF}").exists()]
        assert not np.isin(counted["device"], [disk.number]).any()
    assert len(top.blocks)
    assert (top.blocks["flags"] & int(BlockFlag.STACKED)).all()
    written = counted[np.isin(counted["device"], hidden) & (counted["op"] == BlockOp.WRITE)]
    assert written["bytes"].sum() == WRITTEN + CACHED


@pytest.mark.parametrize("way", ["direct-write", "direct-read", "fsync", "write-back", "cold-read"])
@pytest.mark.parametrize("kind", ["nvme", "linear-on-nvme"])
def test_pieces_of_a_file_are_linked_with_its_operations(kind, way, tmp_path):
    with contextlib.ExitStack() as opened:
        if kind == "nvme":
            disks = [opened.enter_context(made.nvme_disk())]
        else:
            made_of = opened.enter_context(stack(kind))
            disks = [made_of.top, *made_of.below]
        place = opened.enter_context(mounted("ext4", disks[0], tmp_path / "place"))
        file = place / way
        if "read" in way:
            make_cold(file)
        layers = record(tmp_path / "trace", disks, WAYS[way].format(file=file))
        for layer, recorded in enumerate(layers):
            agrees(recorded)
            is_covered(recorded)
            pieces = pieces_of(recorded, way)
            assert pieces["bytes"].sum() == FILE_BYTES
            assert set(pieces["class"]) == {CLASS_OF_WAY[way]}
            are_placed(pieces.assign(sector=pieces["sector"] - layer * FIRST_SECTOR), file, [])
            are_caused(pieces, recorded.trace.io.set_index("id"))


def failed(recorded: Run) -> list[tuple[BlockOp, int, int]]:
    rows = recorded.blocks[recorded.blocks["status"] != 0]
    return [(BlockOp(row.op), row.sector, row.status) for row in rows.itertuples()]


@pytest.mark.parametrize("queue_mode", [0, 2])
def test_an_error_of_a_disk_is_recorded(queue_mode, tmp_path):
    with made.null_block(queue_mode=queue_mode) as disk:
        made.fail_sectors(disk, 800, 807)
        (recorded,) = record(
            tmp_path / "trace",
            [disk],
            f"dd if={disk.path} of=/dev/null bs=4k skip=97 count=3 iflag=direct;"
            f"dd if={disk.path} of=/dev/null bs=4k skip=100 count=1 iflag=direct || test $? = 1;"
            f"dd if=/dev/zero of={disk.path} bs=4k seek=100 count=1 oflag=direct || test $? = 1",
        )
    assert failed(recorded) == [(BlockOp.READ, 800, STATUS_OF_ERRNO_5), (BlockOp.WRITE, 800, STATUS_OF_ERRNO_5)]
    failures = recorded.trace.io[recorded.trace.io["result"] == -5]
    assert [(IoOp(row.op), row.offset) for row in failures.itertuples()] == [
        (IoOp.READ, 800 * SECTOR_BYTES),
        (IoOp.WRITE, 800 * SECTOR_BYTES),
    ]
    assert recorded.blocks.loc[recorded.blocks["status"] != 0, "cause"].tolist() == failures["id"].tolist()


def test_an_error_of_a_mapped_disk_is_its_own(tmp_path):
    """The disk below is not asked."""
    with (
        made.null_block(queue_mode=2) as below,
        made.mapped(f"0 8000 linear {below.path} 0", "8000 8000 error") as top,
    ):
        upper, lower = record(
            tmp_path / "trace",
            [top, below],
            f"dd if={top.path} of=/dev/null bs=8k count=13 iflag=direct;"
            f"dd if={top.path} of=/dev/null bs=4k skip=1009 count=1 iflag=direct || test $? = 1",
        )
    assert failed(upper) == [(BlockOp.READ, 8072, STATUS_OF_ERRNO_5)]
    assert failed(lower) == []
    assert lower.of(BlockOp.READ)["bytes"].sum() == 13 * 8192


def test_a_medium_error_after_a_part_that_was_read(tmp_path):
    """scsi_debug with opts=2 cannot read ten sectors from 0x1234 on."""
    bad, first = 0x1234, 4608
    with made.scsi_disk(opts=2) as disk:
        (recorded,) = record(
            tmp_path / "trace",
            [disk],
            f"dd if={disk.path} of=/dev/null bs=64k skip={first // 128} count=1 iflag=direct || test $? = 1",
        )
    assert failed(recorded) == [(BlockOp.READ, first, STATUS_MEDIUM)]
    assert first < bad < first + 128
    request = recorded.blocks[recorded.blocks["status"] != 0].iloc[0]
    assert request["bytes"] == 65536
    assert recorded.trace.io.set_index("id").loc[request["cause"], "offset"] == first * SECTOR_BYTES


@pytest.mark.parametrize("kind", ["nvme", "scsi", "null_blk", "linear-on-nvme"])
def test_flushes_and_writes_that_are_forced_to_the_medium(kind, tmp_path):
    writes = 17
    with stack(kind) if "-on-" in kind else DISKS[kind](tmp_path) as opened:
        disks = [opened.top, *opened.below] if isinstance(opened, Stack) else [opened]
        queues = [Path("/sys/block") / Path(disk.path).name / "queue" for disk in disks]
        forced = [(queue / "fua").read_text() == "1\n" for queue in queues]
        assert all((queue / "write_cache").read_text() == "write back\n" for queue in queues)
        layers = record(
            tmp_path / "trace",
            disks,
            f"dd if=/dev/zero of={disks[0].path} bs=4k count={writes} oflag=direct,dsync;"
            f"dd if=/dev/zero of={disks[0].path} bs=4k count=3 seek=100 conv=fsync",
        )
    for layer, (recorded, has_fua) in enumerate(zip(layers, forced, strict=True)):
        direct = recorded.of(BlockOp.WRITE)
        direct = direct[direct["sector"] - layer * FIRST_SECTOR < 100 * 8]
        assert len(direct) == writes
        is_forced = (direct["flags"] & int(BlockFlag.FUA)) != 0
        flushes = recorded.of(BlockOp.FLUSH)
        # The kernel syncs a block device after each such write, forced or not, and the last dd does once. A disk that
        # cannot force a write is asked for one flush more each time.
        is_bio = set(recorded.blocks["form"]) == {BlockForm.BIO}
        assert is_forced.all() == (has_fua or is_bio)
        assert len(flushes) == writes + 1 + (0 if has_fua or is_bio else writes)
        if not is_bio:
            assert recorded.counted["flushes"] == len(flushes)
        assert not recorded.blocks["status"].any()


@pytest.mark.parametrize("kind", ["nvme", "scsi", "null_blk", "linear-on-nvme"])
def test_discards(kind, tmp_path):
    with stack(kind) if "-on-" in kind else DISKS[kind](tmp_path) as opened:
        disks = [opened.top, *opened.below] if isinstance(opened, Stack) else [opened]
        layers = record(
            tmp_path / "trace", disks, f"blkdiscard --force --offset 1048576 --length 2097152 {disks[0].path}"
        )
    for layer, recorded in enumerate(layers):
        discards = recorded.of(BlockOp.DISCARD)
        assert discards["bytes"].sum() == recorded.counted["discard_bytes"] == 2 << 20
        assert len(discards) == recorded.counted["discards"]
        assert discards["sector"].min() == 2048 + layer * FIRST_SECTOR
        assert (discards["op"] != BlockOp.WRITE).all()
        assert recorded.pieces[recorded.pieces["block"].isin(discards.index)].empty


@pytest.mark.parametrize("queue_mode", [0, 2])
@pytest.mark.parametrize("is_mapped", [False, True])
def test_zone_operations(queue_mode, is_mapped, tmp_path):
    zone_sectors = (4 << 20) // SECTOR_BYTES
    with contextlib.ExitStack() as opened:
        below = opened.enter_context(made.null_block(queue_mode=queue_mode, zoned=1, zone_size=4))
        disks = [opened.enter_context(made.linear(below)), below] if is_mapped else [below]
        node = disks[0].path
        layers = record(
            tmp_path / "trace",
            disks,
            f"blkzone open --offset 0 --count 2 {node};"
            f"dd if=/dev/zero of={node} bs=64k count=7 oflag=direct;"
            f"blkzone close --offset 0 --count 1 {node};"
            f"blkzone finish --offset {zone_sectors} --count 1 {node};"
            f"blkzone reset --offset {zone_sectors} --count 3 {node}",
        )
        conditions = [line.split("zcond:")[1][:5].strip(" ([") for line in run("blkzone", "report", node).splitlines()]
    assert conditions[:4] == ["4(cl", "1(em", "1(em", "1(em"]
    for recorded in layers:
        is_counted = queue_mode or recorded is not layers[-1]  # without requests null_blk counts nothing
        zones = recorded.of(BlockOp.ZONE)
        assert (zones["sector"] // zone_sectors).tolist() == [0, 1, 0, 1, 1, 2, 3]
        assert (zones["sector"] % zone_sectors == 0).all()
        assert not zones["status"].any()
        assert recorded.of(BlockOp.WRITE)["bytes"].sum() == 7 << 16
        assert recorded.counted["write_bytes"] == (7 << 16 if is_counted else 0)


def test_a_partition_of_an_nvme_disk(tmp_path):
    with made.nvme_disk() as disk:
        run("addpart", disk.path, "1", "4096", "8192")
        try:
            (recorded,) = record(
                tmp_path / "trace", [disk], f"dd if=/dev/zero of={disk.path}p1 bs=64k count=16 seek=5 oflag=direct"
            )
        finally:
            run("delpart", disk.path, "1")
    direct = recorded.pieces[recorded.pieces["class"] == BlockDataClass.DIRECT]
    assert direct["bytes"].sum() == recorded.counted["write_bytes"] == 16 << 16
    assert (direct["sector"] * SECTOR_BYTES == direct["offset"] + 4096 * SECTOR_BYTES).all()
    assert RecordKind.BLOCK_DATA in recorded.trace.arrays


# One read of each of several loop devices, of which the one is gone before the next is made.
READ_DISKS_IN_TURN = """
import fcntl, mmap, os, sys
ADD, REMOVE, SET_FILE, CLEAR_FILE = 0x4C80, 0x4C81, 0x4C00, 0x4C01  # include/uapi/linux/loop.h
control, image = os.open("/dev/loop-control", os.O_RDWR), os.open(sys.argv[1], os.O_RDWR)
for number in map(int, sys.argv[2:]):
    try: fcntl.ioctl(control, ADD, number)
    except FileExistsError: pass  # of a run that was killed
    disk = os.open(f"/dev/loop{number}", os.O_RDWR | os.O_DIRECT)
    fcntl.ioctl(disk, SET_FILE, image)
    assert os.preadv(disk, [mmap.mmap(-1, 4096)], 4096) == 4096
    fcntl.ioctl(disk, CLEAR_FILE)
    os.close(disk)
    fcntl.ioctl(control, REMOVE, number)
"""


def test_a_disk_in_the_memory_of_one_that_is_gone_has_its_own_number(tmp_path):
    numbers = range(1009, 1009 + 101)
    (tmp_path / "image").write_bytes(bytes(1 << 20))
    command = ("python3", "-c", READ_DISKS_IN_TURN, tmp_path / "image", *map(str, numbers))
    done = run_recorder(tmp_path / "trace", *command, options=("--layer", "block"))
    assert done.returncode == 0, done.stderr
    blocks = characterize.open(tmp_path / "trace").blocks
    loops = blocks[blocks["device"].astype(int) // (1 << 20) == LOOP_MAJOR]
    reads = loops[loops["bytes"] == 4096]
    assert [int(device) % (1 << 20) for device in reads["device"]] == list(numbers)


def test_appends_to_zones_are_writes_with_data(tmp_path):
    """As btrfs writes data to a disk of zones, and nothing else does."""
    zones = {"size": 1024, "zoned": 1, "zone_size": 64}
    with made.null_block(queue_mode=2, **zones) as disk:
        options = ("-O", "zoned", "-d", "single", "-m", "single")
        try:
            place = contextlib.ExitStack()
            directory = place.enter_context(mounted("btrfs", disk, tmp_path / "place", make_options=options))
        except subprocess.CalledProcessError as error:
            pytest.skip(f"this mkfs.btrfs makes none on zones: {error.stderr.strip()}")
        with place:
            command = f"dd if=/dev/urandom of={directory}/file bs=1M count=5 conv=fsync"
            (recorded,) = record(tmp_path / "trace", [disk], command)
    assert recorded.counted["write_bytes"] == recorded.of(BlockOp.WRITE)["bytes"].sum()
    paths = recorded.pieces["file"].map(recorded.trace.paths)
    assert recorded.pieces.loc[paths == f"{directory}/file", "bytes"].sum() == CACHED

# SPDX-License-Identifier: Apache-2.0
"""Records what disks do for a command, and judges it by what the kernel counted and by the maps of file systems."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

import characterize
from characterize.layout import BlockDataClass, BlockFlag, BlockForm, BlockOp
from tests.machines.block_device import SECTOR_BYTES, BlockDevice, Extent, extents, lies_at, run
from tests.truths.page_cache import cache_only
from tests.truths.told import run_recorder

FILE_BYTES = 8 << 20
DATA_OPS = [BlockOp.READ, BlockOp.WRITE]
FILELESS = [BlockDataClass.METADATA, BlockDataClass.JOURNAL, BlockDataClass.SWAP, BlockDataClass.UNTRACED]


@dataclass
class Run:
    """What a device did while a command was recorded: by the trace and by the kernel."""

    trace: characterize.Trace
    blocks: pd.DataFrame
    pieces: pd.DataFrame
    counted: dict[str, int]

    def of(self, op: BlockOp) -> pd.DataFrame:
        return self.blocks[self.blocks["op"] == op]


def record(trace_path: Path, devices: list[BlockDevice], command: str) -> list[Run]:
    """One recording, as each of the devices saw it."""
    os.sync()
    before = [device.statistics() for device in devices]
    done = run_recorder(trace_path, "sh", "-ec", f"{command}\nsync")
    after = [device.statistics() for device in devices]
    assert done.returncode == 0, done.stderr
    trace = characterize.open(trace_path)
    assert not trace.header.lost
    return [
        Run(
            trace,
            trace.blocks[trace.blocks["device"] == device.number],
            trace.block_data[trace.block_data["device"] == device.number],
            {name: new[name] - old[name] for name in new},
        )
        for device, old, new in zip(devices, before, after, strict=True)
    ]


def agrees(run: Run, zeroed_bytes: int = 0) -> None:
    """
    All that the kernel has counted stands in the records. It counts an empty write that asks for a flush, which is no
    request, and what makes zeroes, as writes; and dm does a write that asks for a flush first in two.
    """
    reads, writes = run.of(BlockOp.READ), run.of(BlockOp.WRITE)
    # The recorder looks at the files it records, for which a file system may have to read its metadata.
    own_reads = run.counted["reads"] - len(reads)
    assert 0 <= own_reads <= run.trace.header.metadata["skips"]["own_block_request"]
    assert own_reads or reads["bytes"].sum() == run.counted["read_bytes"]
    assert writes["bytes"].sum() + zeroed_bytes == run.counted["write_bytes"]
    others = len(run.of(BlockOp.FLUSH)) + len(run.of(BlockOp.WRITE_ZEROES))
    others += ((writes["form"] == BlockForm.BIO) & ((writes["flags"] & int(BlockFlag.PREFLUSH)) != 0)).sum()
    assert len(writes) <= run.counted["writes"] <= len(writes) + others


def is_covered(run: Run) -> None:
    """Each byte of data stands in one piece, in the order of sectors, and is of a file or of a known class."""
    data = run.blocks[run.blocks["op"].isin(DATA_OPS) & (run.blocks["bytes"] > 0)]
    for index, pieces in run.pieces.groupby("block"):
        block = data.loc[index]
        ends = pieces["sector"] + pieces["bytes"] // SECTOR_BYTES
        assert pieces["sector"].iloc[0] == block["sector"]
        assert (pieces["sector"].iloc[1:].to_numpy() == ends.iloc[:-1].to_numpy()).all()
        assert pieces["bytes"].sum() == block["bytes"]
    # Where no program ran at the end of a request, nobody knows its pages (docs/decisions/0006): a few, if any.
    unseen = (data["flags"].to_numpy() & int(BlockFlag.END_UNSEEN)) != 0
    assert unseen.sum() <= len(data) / 20
    assert set(run.pieces["block"]) | set(data.index[unseen]) == set(data.index)
    assert (run.pieces["file"].gt(0) | run.pieces["class"].isin(FILELESS)).all()


def adds_up(run: Run, pieces: pd.DataFrame, expected_bytes: int) -> bool:
    """Of requests whose end no program saw nobody knows the pages (docs/decisions/0006); is_covered limits them."""
    unseen = (run.blocks["flags"].to_numpy() & int(BlockFlag.END_UNSEEN)) != 0
    without_pieces = ~run.blocks.index.isin(run.pieces["block"])
    unknown_bytes = int(run.blocks.loc[unseen & without_pieces, "bytes"].sum())  # unsigned, and may be the more
    return expected_bytes - unknown_bytes <= pieces["bytes"].sum() <= expected_bytes


def pieces_of(run: Run, name: str) -> pd.DataFrame:
    paths = run.trace.paths
    return run.pieces[run.pieces["file"].map(lambda file: Path(paths.get(file, "")).name == name)]


def make_cold(file: Path) -> None:
    run("dd", "if=/dev/urandom", f"of={file}", "bs=1M", f"count={FILE_BYTES >> 20}", "conv=fsync")
    run("sync", "--file-system", file)
    cache_only(file, [])


WAYS = {
    "direct-write": "dd if=/dev/zero of={file} bs=64k count=128 oflag=direct",
    "direct-read": "dd if={file} of=/dev/null bs=64k iflag=direct",
    "large-direct-read": "dd if={file} of=/dev/null bs=4M iflag=direct",
    "fsync": "dd if=/dev/urandom of={file} bs=64k count=128 conv=fsync",
    "write-back": "dd if=/dev/urandom of={file} bs=64k count=128",
    "cold-read": "dd if={file} of=/dev/null bs=64k",
}
CLASS_OF_WAY = {
    "direct-write": BlockDataClass.DIRECT,
    "direct-read": BlockDataClass.DIRECT,
    "large-direct-read": BlockDataClass.DIRECT,
    "fsync": BlockDataClass.WRITEBACK,
    "write-back": BlockDataClass.WRITEBACK,
    "cold-read": BlockDataClass.FILL,
}


def are_placed(pieces: pd.DataFrame, file: Path, chunks: list[Extent]) -> None:
    parts = extents(file)
    for piece in pieces.itertuples():
        assert lies_at(piece.offset, piece.bytes, piece.sector * SECTOR_BYTES, parts, chunks)


def are_caused(pieces: pd.DataFrame, operations: pd.DataFrame) -> None:
    """By operations of the same file and thread, and direct I/O by one that asked for it."""
    assert set(pieces["cause"]) <= set(operations.index)
    by = operations.loc[pieces["cause"]].set_index(pieces.index)
    assert (by["file"] == pieces["file"]).all()
    assert (by["thread"] == pieces["thread"]).all()
    direct = pieces["class"] == BlockDataClass.DIRECT
    begins = by["offset"] <= pieces["offset"]
    ends = by["offset"] + by["asked_bytes"] >= pieces["offset"] + pieces["bytes"]
    assert (begins & ends)[direct].all()

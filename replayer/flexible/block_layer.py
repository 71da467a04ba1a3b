# SPDX-License-Identifier: Apache-2.0
"""Turns block requests into operations of one thread on block devices, which can be altered, and these back.

At the block layer a stream is a device and threads mean nothing (`characterize.workload.sequential`), so with one
thread for all requests the five parameters of the operations are those of the requests, number in flight included.

Flushes go along, as syncs. Other requests that move no data, or failed, are left out: where a discard would be after
its neighbours were moved is not known.
"""

from __future__ import annotations

import numpy as np

from characterize.device_name import device_name
from characterize.layout import (
    FILE_DTYPE,
    FILEOP_DTYPE,
    IO_DTYPE,
    NOT_MEASURED_U32,
    NOT_MEASURED_U64,
    BlockFlag,
    BlockOp,
    Fileop,
    FileType,
    IoFlag,
    IoOp,
    RecordKind,
    Source,
)
from characterize.requests import SECTOR_BYTES, block_records, data_moved
from characterize.trace import Trace

_OF_WRITES = ~np.uint32(BlockFlag.FUA | BlockFlag.PREFLUSH)


def operations_of_blocks(trace: Trace) -> Trace:
    """A trace of the same times whose requests are those of the block layer; ``id``: number of the request, from 1."""
    blocks = block_records(trace)
    number = np.arange(1, len(blocks) + 1)
    data, flush = data_moved(blocks), (blocks["op"] == BlockOp.FLUSH) & (blocks["status"] == 0)
    io = _common(np.zeros(int(data.sum()), IO_DTYPE), blocks[data], number[data])
    io["kind"], io["op"] = RecordKind.IO, np.where(blocks["op"][data] == BlockOp.READ, IoOp.READ, IoOp.WRITE)
    io["flags"], io["missed_bytes"] = IoFlag.DIRECT | IoFlag.POSITIONED, NOT_MEASURED_U32
    io["offset"] = blocks["sector"][data] * np.uint64(SECTOR_BYTES)
    io["asked_bytes"] = io["result"] = blocks["bytes"][data]
    fileops = _common(np.zeros(int(flush.sum()), FILEOP_DTYPE), blocks[flush], number[flush])
    fileops["kind"], fileops["op"] = RecordKind.FILEOP, Fileop.FSYNC
    devices = np.unique(io["file"])
    files = np.zeros(len(devices), FILE_DTYPE)
    files["kind"], files["type"], files["file"] = RecordKind.FILE, FileType.BLOCK_DEVICE, devices
    files["resident_bytes"] = NOT_MEASURED_U64
    np.maximum.at(files["size_bytes"], np.searchsorted(devices, io["file"]), io["offset"] + io["asked_bytes"])
    paths = {device: device_name(device) for device in devices.tolist()}
    gaps = trace.arrays[RecordKind.GAP]
    arrays = {RecordKind.IO: io, RecordKind.FILEOP: fileops, RecordKind.FILE: files, RecordKind.GAP: gaps}
    return Trace(trace.header, arrays, paths, trace.path, trace.warnings)


def requests_to_run(trace: Trace) -> np.ndarray:
    """The block requests of a trace in the order of their starts, without what is not known before they have run."""
    blocks = block_records(trace)
    blocks = blocks[np.argsort(blocks["start_ns"], kind="stable")]
    blocks["queued_ns"], blocks["cause"] = NOT_MEASURED_U64, 0
    return blocks


def _common(records: np.ndarray, blocks: np.ndarray, number: np.ndarray) -> np.ndarray:
    records["source"], records["thread"], records["process"] = Source.SYNTHETIC, 1, 1
    records["start_ns"], records["duration_ns"] = blocks["start_ns"], blocks["duration_ns"]
    records["file"], records["id"] = blocks["device"], number
    return records


def blocks_of_operations(altered: Trace, parent: Trace) -> Trace:
    """The reverse, of operations that were altered; what these do not say is as it was in the parent's requests."""
    was = block_records(parent)
    io, fileops = altered.arrays[RecordKind.IO], altered.arrays[RecordKind.FILEOP]
    data, flushes = (was[(records["id"] - np.uint64(1)).astype(np.int64)] for records in (io, fileops))
    turned = (io["op"] == IoOp.READ) != (data["op"] == BlockOp.READ)
    data["op"] = np.where(io["op"] == IoOp.READ, BlockOp.READ, BlockOp.WRITE)
    data["flags"][turned] &= _OF_WRITES
    data["device"], data["bytes"] = io["file"], io["result"]
    data["sector"] = io["offset"] // np.uint64(SECTOR_BYTES)
    for blocks, records in ((data, io), (flushes, fileops)):
        blocks["start_ns"], blocks["duration_ns"] = records["start_ns"], records["duration_ns"]
        blocks["queued_ns"], blocks["cause"] = NOT_MEASURED_U64, 0
    blocks = np.concatenate([data, flushes])
    blocks = blocks[np.argsort(blocks["start_ns"], kind="stable")]
    arrays = {
        RecordKind.TASK: parent.arrays[RecordKind.TASK],
        RecordKind.GAP: altered.arrays[RecordKind.GAP],
        RecordKind.BLOCK: blocks,
    }
    altered.header.count = {kind: len(array) for kind, array in arrays.items()}
    return Trace(altered.header, arrays, warnings=altered.warnings)

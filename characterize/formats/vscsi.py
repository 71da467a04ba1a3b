# SPDX-License-Identifier: Apache-2.0
"""Turns a binary trace of VMware's vSCSI layer, as CloudPhysics collected them, into chunks of BLOCK records.

Records of one size, little-endian, as libCacheSim reads them: version 1 of 32 bytes, version 2 of 40, which has the
response time behind. Bytes, logical blocks of 512 bytes, times in microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from characterize.errors import FlextraceError
from characterize.formats.block_records import block_draft
from characterize.formats.compressed import opened
from characterize.formats.lines import Draft
from characterize.formats.reading import TIME_DIGITS, Chunk, Reading
from characterize.formats.scsi import CODES, op_of_code
from characterize.layout import RecordKind

_PLACE = (("block", "<u8"), ("time", "<u8"))
V1_DTYPE = np.dtype(
    [("number", "<u4"), ("bytes", "<u4"), ("segments", "<u4"), ("command", "<u2"), ("version", "<u2"), *_PLACE]
)
V2_DTYPE = np.dtype(
    [
        *(("command", "<u2"), ("version", "<u2"), ("number", "<u4"), ("bytes", "<u4"), ("segments", "<u4")),
        *(*_PLACE, ("response", "<u8")),
    ]
)
_DTYPE_OF_VERSION = {2: V2_DTYPE, 1: V1_DTYPE}
_VERSION_SHIFT = 8
_COMMAND_MASK = 0xFF
RECORDS_AT_ONCE = 1 << 17


def looks_like(head: bytes) -> bool:
    """Whether a file begins with records of one version; one alone has to be all of it."""
    return _version_of(head) is not None


def _version_of(head: bytes) -> int | None:
    for version, dtype in _DTYPE_OF_VERSION.items():
        records = np.frombuffer(head, dtype, len(head) // dtype.itemsize)[:64]
        enough = len(records) >= 2 or len(head) == dtype.itemsize
        if enough and (records["version"] >> _VERSION_SHIFT == version).all():
            return version
    return None


def chunks(reading: Reading) -> Iterator[Chunk]:
    """Read a file of the format; what is named a line in an error is the number of the record.

    Raises
    ------
    FlextraceError
        Not of a known version, or cut off within a record.
    """
    if reading.time_unit not in TIME_DIGITS:
        raise FlextraceError(f"--time-unit {reading.time_unit}: of the times of vscsi choose s, ms, us or ns", 2)
    ns_per_unit = 10 ** TIME_DIGITS[reading.time_unit]
    ops = np.array([op_of_code(code) for code in range(CODES)])
    done = 0
    with opened(reading.path) as stream:
        head = stream.read(2 * V2_DTYPE.itemsize)
        version = _version_of(head)
        if version is None:
            raise FlextraceError(f"{reading.path} is not a vscsi trace: its first records have no known version")
        dtype = _DTYPE_OF_VERSION[version]
        reading.facts["version"] = version
        reading.durations_known = "response" in (dtype.names or ())
        while content := head + stream.read(RECORDS_AT_ONCE * dtype.itemsize):
            whole = len(content) // dtype.itemsize
            head = content[whole * dtype.itemsize :]
            if not whole:
                reading.bad([(done + 1, f"a record of {dtype.itemsize} bytes", f"{len(content)} bytes")])
                return
            records = np.frombuffer(content, dtype, whole)
            draft = _draft(reading, records, ops, ns_per_unit)
            draft.require(records["version"] >> _VERSION_SHIFT == version, f"a record of version {version}")
            yield Chunk({RecordKind.BLOCK: _fine(reading, draft, records, done)})
            done += whole


def _draft(reading: Reading, records: np.ndarray, ops: np.ndarray, ns_per_unit: int) -> Draft:
    def nanoseconds(name: str) -> np.ndarray:
        fits = records[name] < 2**63 // ns_per_unit
        return np.where(fits, np.where(fits, records[name], 0).astype(np.int64) * ns_per_unit, -1)

    return block_draft(
        start_ns=nanoseconds("time"),
        device=np.zeros(len(records), np.int64),
        offset=np.minimum(records["block"], 2**63 - 1).astype(np.int64),
        size=records["bytes"].astype(np.int64),
        op=ops[records["command"] & _COMMAND_MASK],
        duration_ns=nanoseconds("response") if reading.durations_known else None,
        sector_bytes=reading.sector_bytes,
    )


def _fine(reading: Reading, draft: Draft, records: np.ndarray, done: int) -> np.ndarray:
    fine = np.ones(len(records), bool)
    for wrong, expected in draft.problems:
        rows = np.flatnonzero(wrong & fine).tolist()
        reading.bad((done + row + 1, expected, str(records[row])) for row in rows)
        fine &= ~wrong
    return draft.records[fine]

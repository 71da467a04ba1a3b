# SPDX-License-Identifier: Apache-2.0
"""Turns the byte layout of ``bpf/trace_format.h`` into numpy dtypes and Python enums.

Every name and number here repeats the C header, which is the contract; ``tests/characterize/test_layout.py`` compiles
the header and compares. Fields, units and sentinel values are documented there.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag

import numpy as np

TRACE_MAGIC = b"FLEXTRC1"
TRACE_VERSION_MAJOR = 1
TRACE_VERSION_MINOR = 12
TRACE_HEADER_BYTES = 4096
TRACE_RECORD_BYTES = 64
TRACE_JSON_BYTES_MAX = 3072
TRACE_TEXT_BYTES = 48
TRACE_PATH_BYTES_MAX = 4096
TRACE_FIRST_NAME_ID = 1 << 31
TRACE_KINDS_MAX = 16
PROCESSOR_SHARE_NONE = 1
PROCESSOR_SHARE_ALL = 255
IO_RUN_DELAY_SHIFT = 18
IO_RUN_DELAY_NONE = 1
IO_RUN_DELAY_ALL = 63
IO_FAULTS_SHIFT = 24
IO_FAULTS_MAX = 255
FILEOP_NAME_SHIFT = 32
LARGE_FOLIOS_NONE = 1
LARGE_FOLIOS_ALL = 255

NOT_MEASURED_U32 = 2**32 - 1
NOT_MEASURED_U64 = 2**64 - 1


class HeaderFlag(IntFlag):
    """What the whole file is: ``enum trace_header_flag``."""

    INCOMPLETE = 1 << 0
    LOST = 1 << 1
    UNTIMED = 1 << 2
    PLANNED = 1 << 3


class RecordKind(IntEnum):
    """The first byte of every record: ``enum record_kind``."""

    IO = 1
    FILEOP = 2
    FILE = 3
    TASK = 4
    BLOCK = 5
    GAP = 6
    TEXT = 7
    BLOCK_DATA = 8
    RESIDENT = 9
    WAKE = 10
    HOLE = 11


class IoOp(IntEnum):
    """Direction of a data operation: ``enum io_op``."""

    READ = 1
    WRITE = 2


class Source(IntEnum):
    """Which interface of the kernel an operation came through: ``enum record_source``."""

    UNKNOWN = 0
    SYSCALL = 1
    AIO = 2
    IO_URING = 3
    MMAP = 4
    SPLICE = 5
    SYNTHETIC = 6


class IoFlag(IntFlag):
    """Properties of a data or file operation: ``enum io_flag``."""

    DIRECT = 1 << 0
    APPEND = 1 << 1
    SYNC = 1 << 2
    DSYNC = 1 << 3
    NOWAIT = 1 << 4
    HIPRI = 1 << 5
    POSITIONED = 1 << 6
    VECTORED = 1 << 7
    OFFSET_INFERRED = 1 << 8
    COMPAT = 1 << 9
    CREATED = 1 << 10
    SHARED_MEMORY = 1 << 10  # of data requests, which create nothing
    TRUNCATED = 1 << 11
    REUSED_MEMORY = 1 << 11  # of reads, which truncate nothing
    DIRECTORY = 1 << 12
    ESTIMATED = 1 << 13
    FIXED_BUFFER = 1 << 14
    LINKED = 1 << 15
    PROGRAM = 1 << 16
    CTIME_QUERIED = 1 << 17


class Fileop(IntEnum):
    """Operations on a file that move no data: ``enum fileop``."""

    OPEN = 1
    CLOSE = 2
    FSYNC = 3
    FDATASYNC = 4
    SYNC_FILE_RANGE = 5
    TRUNCATE = 6
    FALLOCATE = 7
    RENAME = 8
    UNLINK = 9
    FADVISE = 10
    MKDIR = 11
    RMDIR = 12
    LINK = 13
    SYMLINK = 14
    SYNCFS = 15
    MSYNC = 16


class FileType(IntEnum):
    """What kind of file: ``enum file_type``."""

    UNKNOWN = 0
    REGULAR = 1
    BLOCK_DEVICE = 2
    DIRECTORY = 3


class FileFlag(IntFlag):
    """Properties of a file: ``enum file_flag``."""

    CREATED = 1 << 0
    NEW_NAME = 1 << 1


class BlockOp(IntEnum):
    """Operation of a block request: ``enum block_op``."""

    READ = 1
    WRITE = 2
    FLUSH = 3
    DISCARD = 4
    SECURE_ERASE = 5
    WRITE_ZEROES = 6
    ZONE = 7
    OTHER = 8


class BlockForm(IntEnum):
    """Request or bio: ``enum block_form``."""

    REQUEST = 1
    BIO = 2


class BlockFlag(IntFlag):
    """Properties of a block request: ``enum block_flag``."""

    SYNC = 1 << 0
    META = 1 << 1
    PRIO = 1 << 2
    FUA = 1 << 3
    PREFLUSH = 1 << 4
    READAHEAD = 1 << 5
    BACKGROUND = 1 << 6
    SWAP = 1 << 7
    REQUEUED = 1 << 8
    UNATTRIBUTED = 1 << 9
    MERGED = 1 << 10
    PARTIAL = 1 << 11
    STACKED = 1 << 12
    END_UNSEEN = 1 << 13


class BlockDataClass(IntEnum):
    """Why a piece of a block request moved: ``enum block_data_class``."""

    UNKNOWN = 0
    DIRECT = 1
    FILL = 2
    WRITEBACK = 3
    METADATA = 4
    JOURNAL = 5
    SWAP = 6
    UNTRACED = 7


HEADER_DTYPE = np.dtype(
    [
        ("magic", "S8"),
        ("version_major", "<u2"),
        ("version_minor", "<u2"),
        ("header_bytes", "<u4"),
        ("record_bytes", "<u4"),
        ("flags", "<u4"),
        ("record_count", "<u8"),
        ("start_monotonic_ns", "<u8"),
        ("start_realtime_ns", "<u8"),
        ("end_monotonic_ns", "<u8"),
        ("end_realtime_ns", "<u8"),
        ("count", "<u8", (TRACE_KINDS_MAX,)),
        ("lost", "<u8", (TRACE_KINDS_MAX,)),
        ("json_offset", "<u8"),
        ("json_bytes", "<u8"),
        ("reserved", "V688"),
        ("json", f"V{TRACE_JSON_BYTES_MAX}"),
    ]
)

IO_DTYPE = np.dtype(
    [
        ("kind", "u1"),
        ("op", "u1"),
        ("source", "u1"),
        ("processor_share", "u1"),
        ("flags", "<u4"),
        ("start_ns", "<u8"),
        ("duration_ns", "<u8"),
        ("thread", "<u4"),
        ("process", "<u4"),
        ("file", "<u4"),
        ("asked_bytes", "<u4"),
        ("offset", "<u8"),
        ("result", "<i4"),
        ("missed_bytes", "<u4"),
        ("id", "<u8"),
    ]
)

FILEOP_DTYPE = np.dtype(
    [
        ("kind", "u1"),
        ("op", "u1"),
        ("source", "u1"),
        ("processor_share", "u1"),
        ("flags", "<u4"),
        ("start_ns", "<u8"),
        ("duration_ns", "<u8"),
        ("thread", "<u4"),
        ("process", "<u4"),
        ("file", "<u4"),
        ("result", "<i4"),
        ("argument", "<u8"),
        ("length", "<u8"),
        ("id", "<u8"),
    ]
)

FILE_DTYPE = np.dtype(
    [
        ("kind", "u1"),
        ("type", "u1"),
        ("path_bytes", "<u2"),
        ("flags", "<u4"),
        ("time_ns", "<u8"),
        ("file", "<u4"),
        ("device", "<u4"),
        ("inode", "<u8"),
        ("generation", "<u4"),
        ("filesystem_magic", "<u4"),
        ("size_bytes", "<u8"),
        ("resident_bytes", "<u8"),
        ("reserved", "<u8"),
    ]
)

TASK_DTYPE = np.dtype(
    [
        ("kind", "u1"),
        ("reserved0", "V3"),
        ("flags", "<u4"),
        ("time_ns", "<u8"),
        ("thread", "<u4"),
        ("process", "<u4"),
        ("parent_process", "<u4"),
        ("reserved1", "<u4"),
        ("cgroup", "<u8"),
        ("comm", "S16"),
        ("reserved2", "<u8"),
    ]
)

BLOCK_DTYPE = np.dtype(
    [
        ("kind", "u1"),
        ("op", "u1"),
        ("form", "u1"),
        ("status", "u1"),
        ("flags", "<u4"),
        ("start_ns", "<u8"),
        ("duration_ns", "<u8"),
        ("thread", "<u4"),
        ("process", "<u4"),
        ("device", "<u4"),
        ("bytes", "<u4"),
        ("sector", "<u8"),
        ("queued_ns", "<u8"),
        ("cause", "<u8"),
    ]
)

BLOCK_DATA_DTYPE = np.dtype(
    [
        ("kind", "u1"),
        ("class", "u1"),
        ("reserved0", "V2"),
        ("file", "<u4"),
        ("start_ns", "<u8"),
        ("duration_ns", "<u8"),
        ("thread", "<u4"),
        ("process", "<u4"),
        ("device", "<u4"),
        ("bytes", "<u4"),
        ("sector", "<u8"),
        ("offset", "<u8"),
        ("cause", "<u8"),
    ]
)

_RANGE = [("file", "<u4"), ("time_ns", "<u8"), ("offset", "<u8"), ("bytes", "<u8"), ("reserved", "V32")]
RESIDENT_DTYPE = np.dtype(
    [("kind", "u1"), ("large_folios", "u1"), ("large_folio_order", "u1"), ("reserved0", "V1"), *_RANGE]
)
HOLE_DTYPE = np.dtype([("kind", "u1"), ("reserved0", "V3"), *_RANGE])

WAKE_DTYPE = np.dtype(
    [
        ("kind", "u1"),
        ("reserved0", "V1"),
        ("wakes", "<u2"),
        ("waker", "<u4"),
        ("start_ns", "<u8"),
        ("duration_ns", "<u8"),
        ("thread", "<u4"),
        ("process", "<u4"),
        ("woken_ns", "<u8"),
        ("slept_ns", "<u8"),
        ("cause", "<u8"),
        ("id", "<u8"),
    ]
)

GAP_DTYPE = np.dtype(
    [
        ("kind", "u1"),
        ("lost_kind", "u1"),
        ("cpu", "<u2"),
        ("flags", "<u4"),
        ("start_ns", "<u8"),
        ("duration_ns", "<u8"),
        ("lost_count", "<u8"),
        ("reserved", "V32"),
    ]
)

TEXT_DTYPE = np.dtype(
    [
        ("kind", "u1"),
        ("bytes", "u1"),
        ("index", "<u2"),
        ("reference", "<u4"),
        ("reserved", "<u8"),
        ("text", f"V{TRACE_TEXT_BYTES}"),
    ]
)

RECORD_DTYPE = {
    RecordKind.IO: IO_DTYPE,
    RecordKind.FILEOP: FILEOP_DTYPE,
    RecordKind.FILE: FILE_DTYPE,
    RecordKind.TASK: TASK_DTYPE,
    RecordKind.BLOCK: BLOCK_DTYPE,
    RecordKind.GAP: GAP_DTYPE,
    RecordKind.TEXT: TEXT_DTYPE,
    RecordKind.BLOCK_DATA: BLOCK_DATA_DTYPE,
    RecordKind.RESIDENT: RESIDENT_DTYPE,
    RecordKind.WAKE: WAKE_DTYPE,
    RecordKind.HOLE: HOLE_DTYPE,
}


def name_of(enumeration: type[IntEnum], value: int) -> str:
    """Name of an enum's value; ``kind 12`` for one of a newer format version."""
    try:
        return enumeration(value).name
    except ValueError:
        return f"kind {value}"

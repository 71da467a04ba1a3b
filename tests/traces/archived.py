# SPDX-License-Identifier: Apache-2.0
"""Traces of every record kind, traces of any records; and whether two traces are equal."""

import struct

import numpy as np

from tests.traces.made_trace import made_trace, read, write

HEADER, RECORD = 4096, 64
# Offsets in struct trace_header, computed by hand from the C header.
VERSION_MAJOR_AT, FLAGS_AT, RECORD_COUNT_AT, JSON_OFFSET_AT = 8, 20, 24, 320
RECORDED_NS = 2**60 + 1  # needs more digits than a float has


def full_trace(**header):
    return made_trace(
        [read(0, 100, RECORDED_NS, 5, id=1), write(4096, 200, RECORDED_NS + 10, 7, thread=2, id=2**63 + 1)],
        fileops=[{"op": 3, "start_ns": RECORDED_NS + 5, "duration_ns": 3, "result": -5}],
        files=[{"file": 1, "size_bytes": 5000, "inode": 77}, {"file": 2, "resident_bytes": 4096}],
        tasks=[{"thread": 1, "process": 1, "comm": b"sort"}, {"thread": 2, "process": 1, "comm": b"\xff\xfe"}],
        blocks=[{"op": 1, "start_ns": RECORDED_NS + at, "duration_ns": 2, "bytes": 4096} for at in (7, 9)],
        block_data=[{"block": 0, "class": 2, "file": 1, "bytes": 512, "offset": 8}, {"block": 1, "bytes": 512}],
        resident=[{"file": 2, "offset": 0, "bytes": 2**40, "large_folios": 77, "large_folio_order": 6}],
        gaps=[{"lost_kind": 1, "cpu": 3, "lost_count": 9, "start_ns": 1}],
        paths={1: "/data/" + "x" * 100, 2: b"/data/\xff-".decode(errors="surrogateescape") + "ü" * 60},
        **header,
    )


def trace_file(path, records, *, flags=0, tail=b"", record_count=None):
    """A trace file of any records, of which no part is checked by anything."""
    header = bytearray(HEADER)
    struct.pack_into("<8sHHIIIQ", header, 0, b"FLEXTRC1", 1, 1, HEADER, RECORD, flags, 0)
    struct.pack_into("<Q", header, RECORD_COUNT_AT, len(records) if record_count is None else record_count)
    struct.pack_into("<QQ", header, JSON_OFFSET_AT, HEADER + RECORD * len(records), len(tail))
    path.write_bytes(bytes(header) + b"".join(records) + tail)
    return path


def patch(path, offset, data):
    content = bytearray(path.read_bytes())
    content[offset : offset + len(data)] = data
    path.write_bytes(bytes(content))


def assert_equal_traces(one, other):
    assert one.header == other.header
    assert one.paths == other.paths
    assert [text.replace(str(one.path), "") for text in one.warnings] == [
        text.replace(str(other.path), "") for text in other.warnings
    ]
    assert np.array_equal(one.block_of_data, other.block_of_data)
    for kind, array in one.arrays.items():
        assert array.tobytes() == other.arrays[kind].tobytes(), kind

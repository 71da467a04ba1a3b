# SPDX-License-Identifier: Apache-2.0
"""Records of all kinds that have much to do with each other, and a trace file that has records as they are given."""

from pathlib import Path

import numpy as np
from hypothesis import strategies as st

import characterize
from characterize.layout import HEADER_DTYPE, TRACE_HEADER_BYTES, Fileop, RecordKind
from characterize.trace import Trace
from tests.traces.made_trace import made_trace, read, records, write

BLOCK = 4096
TIME = st.integers(0, 30)


def written_as_is(directory: Path, kinds: list[tuple[RecordKind, dict]], flags: int = 0) -> Path:
    """A trace file with records in the order in which they are given, which `characterize.write` would sort."""
    path = directory / "disorder.iotrace"
    characterize.write(Trace(made_trace().header, {}), path, force=True)
    body = b"".join(records(kind, [row]).tobytes() for kind, row in kinds)
    header = np.frombuffer(path.read_bytes()[:TRACE_HEADER_BYTES], HEADER_DTYPE).copy()
    header["record_count"], header["flags"] = len(kinds), flags
    path.write_bytes(header.tobytes() + body)
    return path


@st.composite
def busy_records(draw):
    """Few files and threads, much in flight at once, blocks in parts, files that grow, shrink and shift."""
    rows = []
    for number in range(1, 1 + draw(st.integers(1, 60))):
        times = {"start_ns": draw(TIME), "duration_ns": draw(st.sampled_from([0, 1, 3, 25]))}
        where = {"file": draw(st.integers(1, 3)), "thread": draw(st.integers(1, 3)), "process": draw(st.integers(1, 2))}
        kind = draw(st.sampled_from(["io", "io", "io", "io", "fileop", "block"]))
        if kind != "block" and draw(st.booleans()):
            whose = {name: where[name] for name in ("thread", "process")}
            slept = {"slept_ns": draw(st.sampled_from([0, 1, 5, 100])), "cause": draw(st.integers(0, 60))}
            rows.append((RecordKind.WAKE, {**times, **whose, **slept, "id": number}))
        if kind == "io":
            offset = draw(st.sampled_from([0, 100, 1000, BLOCK, 2 * BLOCK, 9000]))
            size = draw(st.sampled_from([-5, 0, 50, 100, 900, BLOCK, 3 * BLOCK]))
            missed = draw(st.sampled_from([{}, {"missed_bytes": 0}, {"missed_bytes": max(size, 0) // 2}]))
            maker, share = draw(st.sampled_from([read, write])), draw(st.sampled_from([0, 1, 100, 255]))
            row = {**maker(offset, size), **times, **where, **missed, "processor_share": share, "id": number}
            rows.append((RecordKind.IO, row))
        elif kind == "fileop":
            op = draw(st.sampled_from([Fileop.FSYNC, Fileop.TRUNCATE, Fileop.FALLOCATE]))
            # Mode 0 grows, 8 takes a range out, 32 puts one in (linux/falloc.h).
            mode = draw(st.sampled_from([0, 8, 32])) << 16 if op == Fileop.FALLOCATE else 0
            change = {"argument": draw(st.integers(0, 9000)), "length": draw(st.integers(1, 300)), "flags": mode}
            rows.append((RecordKind.FILEOP, {"op": op, **change, **times, **where, "id": number}))
        else:
            block = {"op": draw(st.integers(1, 3)), "bytes": 8192, "sector": 8 * draw(st.integers(0, 4))}
            rows.append((RecordKind.BLOCK, {**block, **times, "flags": draw(st.sampled_from([0, 1 << 12]))}))
            for _ in range(draw(st.integers(0, 2))):
                owner = {"device": 8 << 20, "start_ns": times["start_ns"] + draw(st.sampled_from([0, 0, 7]))}
                piece = {"class": draw(st.integers(1, 4)), "file": 1, "bytes": 1024, "cause": draw(st.integers(0, 1))}
                rows.append((RecordKind.BLOCK_DATA, {**piece, **owner}))
    if draw(st.booleans()):
        # Windows of time are then 20 ns wide, and borders lie within them.
        rows.append((RecordKind.IO, read(0, BLOCK, 4000)))
    sizes = [draw(st.sampled_from([0, 500, BLOCK, 20_000])) for _ in range(2)]
    known = {"type": 1, "resident_bytes": 9}
    files = [{**known, "file": file, "device": file, "size_bytes": size} for file, size in enumerate(sizes, 1)]
    return [(RecordKind.FILE, row) for row in files] + rows

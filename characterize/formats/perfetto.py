# SPDX-License-Identifier: Apache-2.0
"""Turns a time window of a trace into a file that Perfetto's viewer and chrome://tracing open: threads, devices, depth.

Chrome's trace event format (JSON) and not Perfetto's protobuf: both viewers read it, it needs no library and no encoder
of our own, and a window of a size that one looks at has few events (docs/decisions/0014). Times are microseconds with
three decimals since the window's begin.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from characterize.device_name import device_name
from characterize.errors import FlextraceError
from characterize.layout import NOT_MEASURED_U64, BlockOp, Fileop, IoOp, RecordKind, Source, name_of
from characterize.requests import SECTOR_BYTES
from characterize.trace import Trace
from characterize.trace_files.new_file import new_file

EVENTS_MAX = 1_000_000
DEVICE_PID_BASE = 1 << 31
"""Devices are shown as processes, which the numbers of processes do not reach."""


def write(trace: Trace, output: Path, *, from_s: float = 0, to_s: float | None = None, force: bool = False) -> int:
    """Write the operations and requests that were in flight at some moment of the window.

    Parameters
    ----------
    trace : Trace
    output : Path
    from_s, to_s : float
        Since the begin of the trace; None = to its end.
    force : bool
        Overwrite.

    Returns
    -------
    int
        Operations and requests written.

    Raises
    ------
    FlextraceError
        The window is empty or too large to be looked at, or the file cannot be written.
    """
    origin = min((int(trace.arrays[kind]["start_ns"].min()) for kind in _KINDS if len(trace.arrays[kind])), default=0)
    origin = trace.header.start_monotonic_ns or origin
    begin_ns = origin + round(from_s * 1e9)
    end_ns = None if to_s is None else origin + round(to_s * 1e9)
    chosen = {kind: _within(trace.arrays[kind], begin_ns, end_ns) for kind in _KINDS}
    count = sum(len(array) for array in chosen.values())
    if not count:
        raise FlextraceError(
            "no operation and no block request is within the window: choose another by --from and --to"
        )
    if count > EVENTS_MAX:
        raise FlextraceError(
            f"the window has {count} operations and requests, of which a viewer shows {EVENTS_MAX} at most: choose a "
            "smaller one by --from and --to",
            2,
        )
    with new_file(output, force=force) as stream:
        stream.write(b'{"displayTimeUnit":"ns","traceEvents":[\n')
        separator = b""
        for event in _events(trace, chosen, begin_ns):
            text = json.dumps(event, separators=(",", ":"), ensure_ascii=True)
            stream.write(separator + text.encode())
            separator = b",\n"
        stream.write(b"\n]}\n")
    return count


_KINDS = (RecordKind.IO, RecordKind.FILEOP, RecordKind.BLOCK)


def _within(array: np.ndarray, begin_ns: int, end_ns: int | None) -> np.ndarray:
    starts = array["start_ns"].astype(np.int64)
    ends = starts + array["duration_ns"].astype(np.int64)
    return array[(ends >= begin_ns) & (starts <= (np.iinfo(np.int64).max if end_ns is None else end_ns))]


def _events(trace: Trace, chosen: dict[RecordKind, np.ndarray], begin_ns: int) -> Iterator[dict[str, Any]]:
    yield from _of_threads(trace, chosen, begin_ns)
    yield from _of_devices(trace, chosen[RecordKind.BLOCK], begin_ns)


def _of_threads(trace: Trace, chosen: dict[RecordKind, np.ndarray], begin_ns: int) -> Iterator[dict[str, Any]]:
    comm_of = dict(zip(trace.tasks["thread"].tolist(), trace.tasks["comm"].tolist(), strict=True))
    named: set[int] = set()
    number = 0
    for kind in (RecordKind.IO, RecordKind.FILEOP):
        for row in chosen[kind]:
            thread, process = int(row["thread"]), int(row["process"])
            if thread not in named:
                named.add(thread)
                yield _name("thread_name", process, thread, comm_of.get(thread) or f"thread {thread}")
                yield _name("process_name", process, thread, comm_of.get(process) or f"process {process}")
            enumeration = IoOp if kind == RecordKind.IO else Fileop
            details: dict[str, Any] = {"path": _printable(trace.paths.get(int(row["file"]), ""))}
            fields = ("offset", "asked_bytes", "result") if kind == RecordKind.IO else ("argument", "length", "result")
            details |= {name: int(row[name]) for name in fields}
            event = {
                "name": name_of(enumeration, int(row["op"])).lower(),
                "cat": "file",
                "pid": process,
                "tid": thread,
                "args": details,
            }
            number += 1
            # Slices of one thread must nest; what is asynchronous may overlap.
            yield from _slice(event, row, begin_ns, number if row["source"] in _MAY_OVERLAP else None)


_MAY_OVERLAP = (Source.AIO, Source.IO_URING, Source.MMAP, Source.UNKNOWN)


def _of_devices(trace: Trace, blocks: np.ndarray, begin_ns: int) -> Iterator[dict[str, Any]]:
    known = {it.get("device"): it.get("name") for it in trace.header.metadata.get("devices", [])}
    for number, device in enumerate(np.unique(blocks["device"]).tolist(), start=DEVICE_PID_BASE):
        name = device_name(device)
        yield _name("process_name", number, number, f"device {name} {known.get(name) or ''}".rstrip())
        rows = blocks[blocks["device"] == device]
        for at, row in enumerate(rows):
            event = {
                "name": name_of(BlockOp, int(row["op"])).lower(),
                "cat": "block",
                "pid": number,
                "tid": number,
                "args": {
                    "offset": int(row["sector"]) * SECTOR_BYTES,
                    "bytes": int(row["bytes"]),
                    "thread": int(row["thread"]),
                    **({} if row["queued_ns"] == NOT_MEASURED_U64 else {"queued_ns": int(row["queued_ns"])}),
                },
            }
            yield from _slice(event, row, begin_ns, f"{number}.{at}")
        if trace.header.metadata.get("durations") != "unknown":
            yield from _depth(rows, number, begin_ns)


def _depth(rows: np.ndarray, pid: int, begin_ns: int) -> Iterator[dict[str, Any]]:
    """A counter of the requests in flight."""
    starts = rows["start_ns"].astype(np.int64)
    times = np.concatenate([starts, starts + np.maximum(rows["duration_ns"].astype(np.int64), 1)])
    steps = np.repeat([1, -1], len(rows))
    # At one moment a completion comes before an issue.
    order = np.lexsort((steps, times))
    for time_ns, depth in zip(times[order].tolist(), np.cumsum(steps[order]).tolist(), strict=True):
        yield {"ph": "C", "name": "in flight", "pid": pid, "ts": _us(time_ns - begin_ns), "args": {"requests": depth}}


def _slice(event: dict[str, Any], row: np.void, begin_ns: int, overlap_id: object) -> Iterator[dict[str, Any]]:
    start_ns, duration_ns = int(row["start_ns"]) - begin_ns, int(row["duration_ns"])
    if overlap_id is None:
        yield {"ph": "X", **event, "ts": _us(start_ns), "dur": _us(duration_ns)}
    else:
        yield {"ph": "b", **event, "id": str(overlap_id), "ts": _us(start_ns)}
        plain = {name: value for name, value in event.items() if name != "args"}
        yield {"ph": "e", **plain, "id": str(overlap_id), "ts": _us(start_ns + duration_ns)}


def _name(what: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": _printable(name)}}


def _us(time_ns: int) -> float:
    return time_ns / 1000


def _printable(text: str) -> str:
    """Bytes that are not UTF-8 as escapes: JSON has no room for them."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")

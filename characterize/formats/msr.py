# SPDX-License-Identifier: Apache-2.0
"""Turns a trace of MSR Cambridge, as the SNIA has it, into chunks of BLOCK records.

``Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`` by its README: Windows file times (100 ns since 1601)
for the issue, ticks of 100 ns for the response, ``Read`` or ``Write``, offset and size in bytes. A host's disk is a
device that keeps the name ``HOST_DISK``, as the files of the collection do.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from characterize.formats.block_records import block_draft
from characterize.formats.lines import Columns, Draft, Field, LineShape, number_of_text, records_of_lines
from characterize.formats.reading import FILETIME, NS_PER_TICK, TICKS, TIME_DIGITS, Chunk, Reading
from characterize.layout import BlockOp, RecordKind

SHAPE = LineShape(
    (
        Field("time", "time", r"\d{1,18}"),
        Field("host", "text"),
        Field("disk", "integer"),
        Field("type", "text", "(?i:Read|Write)"),
        Field("offset", "integer"),
        Field("size", "integer"),
        Field("response", "integer"),
    ),
    "Timestamp,Hostname,DiskNumber,Read|Write,Offset,Size,ResponseTime",
    ",",
    header="timestamp,hostname,disknumber,type,offset,size,responsetime",
)
_OPS = {"read": BlockOp.READ, "write": BlockOp.WRITE}

looks_like = SHAPE.fits


def chunks(reading: Reading) -> Iterator[Chunk]:
    """Read a file of the format."""
    reading.durations_known = True
    unit = reading.time_unit
    ns_per_unit = NS_PER_TICK if unit in (FILETIME, TICKS) else 10 ** TIME_DIGITS[unit]

    def convert(columns: Columns) -> Draft:
        op = number_of_text(columns["type"], lambda text: _OPS.get(text.lower(), 0))
        response = columns["response"]
        fits = (response >= 0) & (response < 2**63 // ns_per_unit)
        draft = block_draft(
            start_ns=columns["time"],
            device=_devices(reading, columns),
            offset=columns["offset"],
            size=columns["size"],
            op=op,
            duration_ns=np.where(fits, response * ns_per_unit, -1),
        )
        draft.require((columns["disk"] >= 0) & (columns["disk"] < 2**32), "a number of a disk of 32 bits")
        draft.require(op > 0, "Read or Write")
        return draft

    for records in records_of_lines(reading, SHAPE, convert):
        yield Chunk({RecordKind.BLOCK: records})


def _devices(reading: Reading, columns: Columns) -> np.ndarray:
    """Number of each line's host and disk."""
    hosts = [name.decode(errors="replace").strip() for name in columns["host"].dictionary.to_pylist()]
    pairs = columns["host"].indices.to_numpy().astype(np.int64) << 32 | columns["disk"] & 0xFFFFFFFF
    known, first, place = np.unique(pairs, return_index=True, return_inverse=True)
    number = np.zeros(len(known), np.int64)
    for at in np.argsort(first).tolist():
        number[at] = reading.device_of(f"{hosts[known[at] >> 32]}_{known[at] & 0xFFFFFFFF}")
    return number[place]

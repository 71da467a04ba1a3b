# SPDX-License-Identifier: Apache-2.0
"""Turns what blkparse prints by default into chunks of BLOCK records.

``MAJOR,MINOR CPU SEQUENCE SECONDS.NANOSECONDS PID ACTION RWBS SECTOR + SECTORS [COMM]``, sectors of 512 bytes; of a
completion the brackets hold the error. Seconds count from the begin of the trace. The summary behind the events ends
them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from characterize.formats.block_events import (
    ACTION_OF_LETTER,
    EVENT_DTYPE,
    Action,
    EventPairing,
    op_and_flags,
    set_op_and_flags,
)
from characterize.formats.lines import Columns, Draft, Field, LineShape, number_of_text, records_of_lines
from characterize.formats.reading import Chunk, Reading
from characterize.requests import SECTOR_BYTES

STATUS_OF_ERROR = 10
"""BLK_STS_IOERR: the trace has an errno, a BLOCK record a blk_status_t; that it failed is what both say."""

_BEFORE = r"\s*(?P<major>\d{1,4}),(?P<minor>\d{1,7})\s+\d+\s+\d+\s+(?P<time>\d{1,10}\.\d{1,9})\s+(?P<thread>\d{1,9})\s+"
_BEFORE_UNNAMED = r"^\s*\d{1,4},\d{1,7}\s+\d+\s+\d+\s+\d{1,10}\.\d{1,9}\s+\d{1,9}\s+"
SHAPE = LineShape(
    (
        Field("major", "integer"),
        Field("minor", "integer"),
        Field("time", "time"),
        Field("thread", "integer"),
        Field("action", "text"),
        Field("letters", "text"),
        Field("sector", "integer"),
        Field("sectors", "integer"),
        Field("name", "text"),
    ),
    "MAJOR,MINOR CPU SEQUENCE TIME PID ACTION RWBS SECTOR + SECTORS [COMM]",
    pattern=_BEFORE + r"(?P<action>[QMFDRC])\s+(?P<letters>[A-Z]+)\s+(?:(?P<sector>\d{1,18})|\d{19,20})?"
    r"(?:\s*\+\s*(?P<sectors>\d{1,8}))?\s*\[(?P<name>.*)\]",
    # Plugs, remaps, splits, messages and the commands of pass-through requests are no requests of their own.
    ignored=_BEFORE_UNNAMED + r"(?:(?:m|P|U|UT|A|X|G|I|S|B|d)\s|[A-Z]\s+[A-Z]+\s+\d+\s*\()",
    end=r"^(?:CPU\d+|Total) \(",
    units={"time": "s"},
)


def looks_like(head: bytes) -> bool:
    """Whether a file begins like one of this format."""
    return SHAPE.fits(head)


def chunks(reading: Reading) -> Iterator[Chunk]:
    """Read a file of the format; requests that never completed are left out and counted."""
    pairing = EventPairing(reading)

    def convert(columns: Columns) -> Draft:
        draft = events_draft(columns, number_of_text(columns["action"], lambda letter: ACTION_OF_LETTER[letter]))
        named = draft.records["action"] != Action.COMPLETED
        pairing.name(draft.records["thread"][named], columns["name"].filter(named))
        failed = number_of_text(columns["name"], lambda text: STATUS_OF_ERROR if text.strip("-0") else 0)
        draft.records["status"] = np.where(named, 0, failed)
        return draft

    for events in records_of_lines(reading, SHAPE, convert):
        yield pairing.chunk(events)
    pairing.end()


def events_draft(columns: Columns, action: np.ndarray) -> Draft:
    """Events of the columns ``major, minor, time, thread, letters, sector, sectors``."""
    events = np.zeros(len(action), EVENT_DTYPE)
    draft = Draft(events)
    sectors = np.maximum(columns["sectors"], 0)
    draft.require(columns["time"] >= 0, "a time of 0 to 2^63 ns")
    draft.require(sectors < 2**32 // SECTOR_BYTES, "a size below 2^32 bytes")
    events["time_ns"], events["action"] = columns["time"], action
    events["device"] = columns["major"] << 20 | columns["minor"]
    # A flush may stand at sector 2^64-1, which is none and has more digits than are taken.
    events["sector"] = np.maximum(columns["sector"], 0)
    events["bytes"] = sectors * SECTOR_BYTES
    events["thread"] = np.maximum(columns["thread"], 0)
    set_op_and_flags(events, number_of_text(columns["letters"], op_and_flags))
    return draft

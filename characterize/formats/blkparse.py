# SPDX-License-Identifier: Apache-2.0
"""Turns what blkparse prints by default into chunks of BLOCK records.

``MAJOR,MINOR CPU SEQUENCE SECONDS.NANOSECONDS PID ACTION RWBS SECTOR + SECTORS [COMM]``, sectors of 512 bytes; of a
completion the brackets hold the error, and a remap has ``<- (MAJOR,MINOR) SECTOR`` in their place. Seconds count from
the begin of the trace. The summary behind the events ends them.
"""

from __future__ import annotations

from collections.abc import Iterator

from characterize.formats.block_events import ACTION_OF_LETTER
from characterize.formats.event_lines import EVENT_FIELDS, EVENT_UNITS, REMAP, event_chunks
from characterize.formats.lines import LineShape
from characterize.formats.reading import Chunk, Reading

_BEFORE = r"\s*(?P<major>\d{1,4}),(?P<minor>\d{1,7})\s+\d+\s+\d+\s+(?P<time>\d{1,10}\.\d{1,9})\s+(?P<thread>\d{1,9})\s+"
_BEFORE_UNNAMED = r"^\s*\d{1,4},\d{1,7}\s+\d+\s+\d+\s+\d{1,10}\.\d{1,9}\s+\d{1,9}\s+"
SHAPE = LineShape(
    EVENT_FIELDS,
    "MAJOR,MINOR CPU SEQUENCE TIME PID ACTION RWBS SECTOR + SECTORS [COMM]",
    pattern=_BEFORE + r"(?P<action>[QMFDRCA])\s+(?P<letters>[A-Z]+)\s+(?:(?P<sector>\d{1,18})|\d{19,20})?"
    rf"(?:\s*\+\s*(?P<sectors>\d{{1,8}}))?\s*(?:\[(?P<name>.*)\]|{REMAP})",
    # Plugs, splits, messages and the commands of pass-through requests are no requests of their own.
    ignored=_BEFORE_UNNAMED + r"(?:(?:m|P|U|UT|X|G|I|S|B|d)\s|[A-Z]\s+[A-Z]+\s+\d+\s*\()",
    end=r"^(?:CPU\d+|Total) \(",
    units=EVENT_UNITS,
)
looks_like = SHAPE.fits


def chunks(reading: Reading) -> Iterator[Chunk]:
    """Read a file of the format."""
    return event_chunks(reading, SHAPE, ACTION_OF_LETTER, "name")

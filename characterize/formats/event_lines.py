# SPDX-License-Identifier: Apache-2.0
"""Turns lines that are events of the block layer into chunks of BLOCK records; what texts of blkparse and perf share.

Sectors have 512 bytes, times are in seconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from characterize.formats.block_events import (
    EVENT_DTYPE,
    STATUS_OF_ERROR,
    Action,
    EventPairing,
    op_and_flags,
    set_op_and_flags,
)
from characterize.formats.lines import Columns, Draft, Field, LineShape, number_of_text, records_of_lines
from characterize.formats.reading import Chunk, Reading
from characterize.requests import SECTOR_BYTES

EVENT_FIELDS = (
    Field("major", "integer"),
    Field("minor", "integer"),
    Field("time", "time"),
    Field("thread", "integer"),
    Field("name", "text"),
    Field("action", "text"),
    Field("letters", "text"),
    Field("sector", "integer"),
    Field("sectors", "integer"),
    Field("from_major", "integer"),
    Field("from_minor", "integer"),
)
EVENT_UNITS = {"time": "s"}
REMAP = r"<-\s*\((?P<from_major>\d{1,4}),(?P<from_minor>\d{1,7})\)\s*\d+"
"""Where a request comes from that another device passed on."""


def event_chunks(
    reading: Reading, shape: LineShape, action_of: Mapping[str, Action], error_field: str
) -> Iterator[Chunk]:
    """Read a file of events; requests that never completed are left out and counted.

    Parameters
    ----------
    reading : Reading
    shape : LineShape
        Has `EVENT_FIELDS`.
    action_of : dict of str to Action
        What the texts of the field ``action`` stand for.
    error_field : str
        Where a completion has its error; of any other event ``name`` is that of the thread.
    """
    pairing = EventPairing(reading)

    def convert(columns: Columns) -> Draft:
        draft = _events(columns, number_of_text(columns["action"], lambda text: action_of[text]))
        completed = draft.records["action"] == Action.COMPLETED
        pairing.name(draft.records["thread"][~completed], columns["name"].filter(~completed))
        failed = number_of_text(columns[error_field], lambda text: STATUS_OF_ERROR if text.strip("-0") else 0)
        draft.records["status"] = np.where(completed, failed, 0)
        return draft

    for events in records_of_lines(reading, shape, convert):
        yield pairing.chunk(events)
    pairing.end()


def _events(columns: Columns, action: np.ndarray) -> Draft:
    events = np.zeros(len(action), EVENT_DTYPE)
    draft = Draft(events)
    sectors = np.maximum(columns["sectors"], 0)
    draft.require(columns["time"] >= 0, "a time of 0 to 2^63 ns")
    draft.require(sectors < 2**32 // SECTOR_BYTES, "a size below 2^32 bytes")
    events["time_ns"], events["action"] = columns["time"], action
    events["device"] = columns["major"] << 20 | columns["minor"]
    remapped = columns["from_major"] >= 0
    draft.require((action == Action.REMAPPED) == remapped, "<- (MAJOR,MINOR) SECTOR of a remap and of nothing else")
    events["source"] = np.where(remapped, columns["from_major"] << 20 | columns["from_minor"], 0)
    # A flush may stand at sector 2^64-1, which is none and has more digits than are taken.
    events["sector"] = np.maximum(columns["sector"], 0)
    events["bytes"] = sectors * SECTOR_BYTES
    events["thread"] = np.maximum(columns["thread"], 0)
    set_op_and_flags(events, number_of_text(columns["letters"], op_and_flags))
    return draft

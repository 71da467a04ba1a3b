# SPDX-License-Identifier: Apache-2.0
"""Turns what ``perf script`` prints of the block layer's tracepoints into chunks of BLOCK records.

``COMM PID [CPU] SECONDS: block:EVENT: MAJOR,MINOR RWBS [BYTES] (CMD) SECTOR + SECTORS [PRIORITY] [COMM]``, sectors of
512 bytes, seconds of the clock that perf recorded with (six decimals unless ``--ns`` is given). Needed are
block_rq_issue and block_rq_complete; block_bio_queue and the merges say more where they are. Other events are left out.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from characterize.formats.blkparse import STATUS_OF_ERROR, events_draft
from characterize.formats.block_events import Action, EventPairing
from characterize.formats.lines import Columns, Draft, Field, LineShape, number_of_text, records_of_lines
from characterize.formats.reading import Chunk, Reading

ACTION_OF_EVENT = {
    "block_bio_queue": Action.QUEUED,
    "block_bio_backmerge": Action.MERGED,
    "block_bio_frontmerge": Action.MERGED,
    "block_rq_issue": Action.ISSUED,
    "block_rq_requeue": Action.REQUEUED,
    "block_rq_complete": Action.COMPLETED,
    "block_bio_complete": Action.COMPLETED,
}
_OTHERS = (
    "block_(?:rq_insert|rq_merge|rq_error|rq_remap|getrq|plug|unplug|split|bio_remap|bio_bounce|sleeprq|"
    "touch_buffer|dirty_buffer|io_start|io_done|zone_append|zone_mgmt|\\w*zplug\\w*)"
)
# RE2 has no "anything but".
_NOT_BLOCK = r"(?:[^b\s:]\w*|b[^l\s:]\w*|bl[^o\s:]\w*|blo[^c\s:]\w*|bloc[^k\s:]\w*|block\w+)"
_BEFORE = r"(?P<name>.*?)\s+(?P<thread>-?\d{1,9})(?:/\d+)?\s+(?:\[\d+\]\s+)?(?P<time>\d{1,10}\.\d{1,9}):\s+(?:\d+\s+)?"
SHAPE = LineShape(
    (
        Field("name", "text"),
        Field("thread", "integer"),
        Field("time", "time"),
        Field("action", "text"),
        Field("major", "integer"),
        Field("minor", "integer"),
        Field("letters", "text"),
        Field("sector", "integer"),
        Field("sectors", "integer"),
        Field("end", "text"),
    ),
    "COMM PID [CPU] TIME: block:EVENT: MAJOR,MINOR RWBS ... SECTOR + SECTORS [...]",
    pattern=r"\s*" + _BEFORE + rf"block:(?P<action>{'|'.join(ACTION_OF_EVENT)}):\s+"
    r"(?P<major>\d{1,4}),(?P<minor>\d{1,7})\s+(?P<letters>[A-Z]+)\s+(?:\d+\s+)?(?:\([^)]*\)\s+)?"
    r"(?:(?P<sector>\d{1,18})|\d{19,20})\s+\+\s+(?P<sectors>\d{1,8})\s+(?:[^\[]*\s)?\[(?P<end>.*)\]",
    ignored=rf"^(?:#|\s*\S.*\d+\.\d+:\s+(?:\d+\s+)?(?:(?:block:{_OTHERS}|{_NOT_BLOCK}:[\w-]+):|[\w-]+:\s))",
    units={"time": "s"},
)


def looks_like(head: bytes) -> bool:
    """Whether a file begins like one of this format."""
    return SHAPE.fits(head)


def chunks(reading: Reading) -> Iterator[Chunk]:
    """Read a file of the format; requests that never completed are left out and counted."""
    pairing = EventPairing(reading)

    def convert(columns: Columns) -> Draft:
        draft = events_draft(columns, number_of_text(columns["action"], lambda event: ACTION_OF_EVENT[event]))
        completed = draft.records["action"] == Action.COMPLETED
        pairing.name(draft.records["thread"][~completed], columns["name"].filter(~completed))
        failed = number_of_text(columns["end"], lambda text: STATUS_OF_ERROR if text.strip("-0") else 0)
        draft.records["status"] = np.where(completed, failed, 0)
        return draft

    for events in records_of_lines(reading, SHAPE, convert):
        yield pairing.chunk(events)
    pairing.end()

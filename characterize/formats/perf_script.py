# SPDX-License-Identifier: Apache-2.0
"""Turns what ``perf script`` prints of the block layer's tracepoints into chunks of BLOCK records.

``COMM PID [CPU] SECONDS: block:EVENT: MAJOR,MINOR RWBS [BYTES] (CMD) SECTOR + SECTORS [PRIORITY] [COMM]``, sectors of
512 bytes, seconds of the clock that perf recorded with (six decimals unless ``--ns`` is given). Needed are
block_rq_issue and block_rq_complete; block_bio_queue and the merges say more where they are, and the remaps, which end
with ``<- (MAJOR,MINOR) SECTOR``, of which devices others pass requests on. Other events are left out.
"""

from __future__ import annotations

from collections.abc import Iterator

from characterize.formats.block_events import Action
from characterize.formats.event_lines import EVENT_FIELDS, EVENT_UNITS, REMAP, event_chunks
from characterize.formats.lines import Field, LineShape
from characterize.formats.reading import Chunk, Reading

ACTION_OF_EVENT = {
    "block_bio_queue": Action.QUEUED,
    "block_bio_backmerge": Action.MERGED,
    "block_bio_frontmerge": Action.FRONT_MERGED,
    "block_rq_issue": Action.ISSUED,
    "block_rq_requeue": Action.REQUEUED,
    "block_rq_complete": Action.COMPLETED,
    "block_bio_complete": Action.COMPLETED,
    "block_bio_remap": Action.REMAPPED,
    "block_rq_remap": Action.REMAPPED,
    "block_remap": Action.REMAPPED,
}
_OTHERS = (
    "block_(?:rq_insert|rq_merge|rq_error|getrq|plug|unplug|split|bio_bounce|sleeprq|"
    "touch_buffer|dirty_buffer|io_start|io_done|zone_append|zone_mgmt|\\w*zplug\\w*)"
)
# RE2 has no "anything but".
_NOT_BLOCK = r"(?:[^b\s:]\w*|b[^l\s:]\w*|bl[^o\s:]\w*|blo[^c\s:]\w*|bloc[^k\s:]\w*|block\w+)"
_BEFORE = r"(?P<name>.*?)\s+(?P<thread>-?\d{1,9})(?:/\d+)?\s+(?:\[\d+\]\s+)?(?P<time>\d{1,10}\.\d{1,9}):\s+(?:\d+\s+)?"
SHAPE = LineShape(
    (*EVENT_FIELDS, Field("end", "text")),
    "COMM PID [CPU] TIME: block:EVENT: MAJOR,MINOR RWBS ... SECTOR + SECTORS [...]",
    pattern=r"\s*" + _BEFORE + rf"block:(?P<action>{'|'.join(ACTION_OF_EVENT)}):\s+"
    r"(?P<major>\d{1,4}),(?P<minor>\d{1,7})\s+(?P<letters>[A-Z]+)\s+(?:\d+\s+)?(?:\([^)]*\)\s+)?"
    r"(?:(?P<sector>\d{1,18})|\d{19,20})\s+\+\s+(?P<sectors>\d{1,8})\s+"
    rf"(?:(?:[^\[]*\s)?\[(?P<end>.*)\]|{REMAP}(?:\s+\d+)?)",
    ignored=rf"^(?:#|\s*\S.*\d+\.\d+:\s+(?:\d+\s+)?(?:(?:block:{_OTHERS}|{_NOT_BLOCK}:[\w-]+):|[\w-]+:\s))",
    units=EVENT_UNITS,
)
looks_like = SHAPE.fits


def chunks(reading: Reading) -> Iterator[Chunk]:
    """Read a file of the format."""
    return event_chunks(reading, SHAPE, ACTION_OF_EVENT, "end")

# SPDX-License-Identifier: Apache-2.0
"""Turns a log of ``strace -f -ttt -T`` into chunks of IO, FILEOP, FILE and TASK records.

``[PID] SECONDS CALL(ARGUMENTS) = RESULT [<SECONDS>]``; a call that others interrupt is in two lines, ``unfinished`` and
``resumed``. On a terminal it is ``[pid PID]``, and missing while there is one thread only. Arrow parses the lines; the
calls of `characterize.formats.strace_calls` that remain then run through the tables of descriptors one by one, since
each depends on those before it. strace itself writes a line in 10 to 50 us, so that this is not what one waits for.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from characterize.formats.lines import ABSENT, Columns, Draft, Field, LineShape, records_of_lines
from characterize.formats.reading import Chunk, Reading
from characterize.formats.strace_calls import CALLS, CLONES
from characterize.formats.strace_files import OpenFiles
from characterize.formats.strace_processes import Call

_RESULT = r"= (?P<result>-?\d{1,18}|0x[0-9a-f]{1,16}|\?)(?P<more>.*?)(?:\s<(?P<duration>\d{1,7}\.\d{1,9})>)?"
SHAPE = LineShape(
    (
        Field("thread", "integer"),
        Field("time", "time"),
        Field("gone", "text"),
        Field("resumed", "text"),
        Field("name", "text"),
        Field("arguments", "text"),
        Field("unfinished", "text"),
        Field("result", "text"),
        Field("more", "text"),
        Field("duration", "time"),
    ),
    "[PID] SECONDS CALL(ARGUMENTS) = RESULT <SECONDS>, as of strace -f -ttt -T",
    pattern=r"(?:(?:\[pid\s+)?(?P<thread>\d{1,9})\]?\s+)?(?P<time>\d{1,10}\.\d{1,9})\s+"
    r"(?:\+\+\+ (?P<gone>exited with|killed by) .*|"
    r"(?:<\.\.\. (?P<resumed>\w+) resumed>\s*|(?P<name>\w+)\()(?P<arguments>.*)"
    rf"(?:(?P<unfinished><unfinished \.\.\.>)|\)\s+{_RESULT}))",
    # Signals, other ends, and what strace says of itself.
    ignored=r"^(?:(?:\[pid\s+)?\d{1,9}\]?\s+)?(?:\d+\.\d+\s+)?(?:---|\+\+\+|strace:|\?\?\?\?)",
    interruption=r"strace: Process \d+ attached",
    units={"time": "s", "duration": "s"},
)
ALONE = 1
"""Number of the one thread of a log without -f, and of the first one of a log that names it later."""
_TEXTS = ("gone", "name", "resumed", "arguments", "unfinished", "result", "more")

looks_like = SHAPE.fits


def chunks(reading: Reading) -> Iterator[Chunk]:
    """Read a log; what strace cannot see, such as accesses to mapped files, is left out and counted."""
    log = _Log(reading)
    for rows in records_of_lines(reading, SHAPE, log.keep):
        for call in log.calls(rows):
            try:
                log.files.run(call)
            except (ValueError, IndexError):
                # Arguments that are not as in any version of strace seen here.
                log.files.left_out["calls_not_understood"] += 1
        yield log.files.chunk()
    reading.facts |= {f"left_out_{what}": count for what, count in log.files.left_out.items()}
    reading.durations_known, reading.flags_known = log.has_durations, True


class _Log:
    def __init__(self, reading: Reading):
        self.files = OpenFiles(reading)
        self.has_durations = False
        self._columns: Columns = {}
        self._unfinished: dict[int, tuple[int, str, str]] = {}
        # The thread that has no name while it is alone, at first the one that the log begins with: its number here, and
        # the one that it has while there are others.
        self._first = self._first_named = 0
        self._first_ended = False

    def keep(self, columns: Columns) -> Draft:
        """Hold on to columns; the records are the numbers of their rows."""
        self._columns = columns
        return Draft(np.arange(len(columns["time"])))

    def calls(self, rows: np.ndarray) -> Iterator[Call]:
        """The calls that are of interest, in the order of their ends."""
        columns = self._columns
        wanted = pa.array([name.encode() for name in CALLS])
        calls = (pc.is_in(columns[name].cast(pa.binary()), wanted) for name in ("name", "resumed"))
        mine = pc.or_(pc.or_(*calls), pc.not_equal(columns["gone"].cast(pa.binary()), b""))
        rows = rows[mine.to_numpy(zero_copy_only=False)[rows]]
        threads, times, durations = (columns[name][rows] for name in ("thread", "time", "duration"))
        self.has_durations |= bool((durations != ABSENT).any())
        for named, time_ns, duration_ns, gone, name, resumed, arguments, unfinished, result, more in zip(
            np.where(threads == ABSENT, 0, threads).tolist(),
            times.tolist(),
            np.where(durations == ABSENT, 0, durations).tolist(),
            *(_texts(columns[name], rows) for name in _TEXTS),
            strict=True,
        ):
            if gone:
                self._forget(named)
                continue
            thread = self._thread(named, resumed)
            start_ns, whole, called = time_ns, arguments, name
            if resumed:
                if thread not in self._unfinished:
                    self.files.left_out["calls_without_a_begin"] += 1
                    continue
                start_ns, called, begin = self._unfinished.pop(thread)
                whole = begin + arguments
            if unfinished:
                self._unfinished[thread] = start_ns, called, whole
                if called in CLONES:
                    self.files.processes.clone_begins(thread, whole)
            elif result and result != "?":
                base = 16 if result.startswith("0x") else 10
                yield Call(thread, start_ns, duration_ns, called, whole, int(result, base), more)

    def _forget(self, named: int) -> None:
        """A thread has ended, and another one may get its number; behind the first, the last one left has no name."""
        is_first = named in (0, self._first_named) or (not self._first_named and self._is_first(named, ""))
        thread = self._first if is_first else named
        self._unfinished.pop(thread, None)
        if thread != ALONE:
            self.files.processes.ends(thread)
        self._first_ended |= is_first
        if self._first_ended and len(self.files.processes.made) == 1:
            (self._first,) = self.files.processes.made
            self._first_named, self._first_ended = self._first, False

    def _thread(self, named: int, resumed: str) -> int:
        """The number of a line's thread; on a terminal strace names the first one only while there are others."""
        if not named:
            self._first = self._first or ALONE
            return self._first
        if not self._first_named and self._is_first(named, resumed):
            self._first_named = named
            self._first = self._first or named
        return self._first if named == self._first_named else named

    def _is_first(self, named: int, resumed: str) -> bool:
        """Whether no clone made a thread: it goes on with the first one's call, or no clone can have."""
        if named in self._unfinished:
            return False
        begun = self._unfinished.get(ALONE)
        return bool(begun and begun[1] == resumed) or not self.files.processes.may_be_a_child(named)


def _texts(column: pa.DictionaryArray, rows: np.ndarray) -> list[str]:
    taken = column.take(pa.array(rows)).cast(pa.binary())
    return [text.decode("utf-8", "surrogateescape") for text in taken.to_pylist()]

# SPDX-License-Identifier: Apache-2.0
"""Turns a file of lines into columns, block by block; no step runs once per line in Python.

Where the fields have a delimiter, Arrow's CSV reader parses a block. It does not say which line it could not parse, so
a block with anything unexpected in it is parsed again by the pattern of a line, which knows the numbers of the lines.
Formats without a delimiter are parsed by the pattern at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import ROUND_DOWN, Decimal
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from characterize.errors import FlextraceError
from characterize.formats.compressed import BYTE_ORDER_MARK, opened
from characterize.formats.reading import FILETIME, FILETIME_OF_1970, NS_PER_TICK, TICKS, TIME_DIGITS, Reading

# Else Arrow takes SIGINT for itself while it parses a block, and one that comes as it gives it back is lost.
pa.enable_signal_handlers(False)

BLOCK_BYTES = 8 << 20
LINE_BYTES_MAX = 1 << 20
CSV_BLOCK_BYTES = 1 << 20
_BLANK = r"^\s*$"
SNIFFED_LINES = 32
SNIFFED_SHARE = 0.75
"""So that a malformed line is told as one, and not as another format."""
DECIMAL_DIGITS = 38
SECONDS_DIGITS = 19
"""Of a time in any unit before the point: more are not read."""

Kind = Literal["integer", "time", "text", "unused"]
ABSENT = -(2**63)
"""Integers of fields that a line leaves out."""
# Times since 1970 in ns have 19 digits, and numbers of calls may: those that 64 bits hold whatever the others are.
INTEGER = r"[1-8]?\d{1,18}"
DECIMAL = rf"\d{{1,{SECONDS_DIGITS}}}(?:\.\d*)?(?:[eE][+-]?\d{{1,2}})?"
TYPES = {"integer": pa.int64(), "text": pa.dictionary(pa.int32(), pa.binary())}
Columns = dict[str, Any]
"""Integers and times (in ns; -1 = out of range) as ndarrays of int64, text as pyarrow.DictionaryArray of bytes."""


@dataclass(frozen=True)
class Field:
    """One field of a line: its name, what it is, its pattern."""

    name: str
    kind: Kind
    pattern: str = ""

    def group(self, text: str) -> str:
        """Pattern that captures it, given that of any text."""
        patterns = {"integer": INTEGER, "time": DECIMAL, "text": text, "unused": text}
        return f"(?P<{self.name}>{self.pattern or patterns[self.kind]})"


@dataclass(frozen=True)
class LineShape:
    """What a line of a format looks like.

    Attributes
    ----------
    fields : tuple of Field
    expected : str
        The line in words, for errors.
    delimiter : str
        Between the fields; a blank stands for any white space. Empty: `pattern` says all.
    pattern : str
        Of a whole line, in the syntax that RE2 and Python share; made from the fields where there is a delimiter.
    tail : str
        Pattern of what may follow the last field.
    ignored : str
        Pattern of lines that belong to the format and carry no record.
    interruption : str
        Pattern of what may stand within a line and end it; the next line is the rest.
    end : str
        Pattern of the line where the records of a file end.
    header : str
        Names of the columns, in small letters, by the format's own description; a file that begins with others is
        another table. Empty: the format has no names.
    quoted : bool
        Whether a text may stand in quotation marks, and then have the delimiter in it.
    units : dict of str to str
        Units of times that have one of their own.
    """

    fields: tuple[Field, ...]
    expected: str
    delimiter: str = ""
    pattern: str = ""
    tail: str = ""
    ignored: str = ""
    interruption: str = ""
    end: str = ""
    header: str = ""
    quoted: bool = False
    units: Mapping[str, str] = field(default_factory=dict)

    @property
    def whole(self) -> str:
        """Pattern of a line with its end."""
        if not self.delimiter:
            return f"^{self.pattern}\\s*$"
        between = r"\s+" if self.delimiter == " " else rf"[ \t]*{re.escape(self.delimiter)}[ \t]*"
        text = r'"(?:[^"]|"")*"|[^",\r\n]*' if self.quoted else f"[^{self.delimiter}]*"
        # Whoever quotes one field may quote all of them; of a number the marks are not part.
        groups = [
            f'"?{it.group(text)}"?' if self.quoted and it.kind in {"integer", "time"} else it.group(text)
            for it in self.fields
        ]
        return rf"^\s*{between.join(groups)}{self.tail}\s*$"

    def records_in(self, block: bytes) -> bytes:
        """A block, or what is before the end of the records in it."""
        end = re.search(self.end.encode(), block, re.MULTILINE) if self.end else None
        return block[: end.start()] if end else block

    def uninterrupted(self, block: bytes) -> bytes:
        """A block in which what interrupts a line stands before it, so that lines keep their numbers."""
        if not self.interruption:
            return block
        return re.sub(rf"^(.+)({self.interruption}\n)(?=.)".encode(), rb"\2\1", block, flags=re.MULTILINE)

    def fits(self, head: bytes) -> bool:
        """Whether most of the first lines of a file have this shape; the last, which may be cut off, does not count."""
        whole = self.records_in(head)
        lines = whole.splitlines(keepends=True)
        lines = lines[:-1] if len(lines) > 1 and whole == head and not head.endswith(b"\n") else lines
        lines = [line for line in lines if line.strip()]
        if lines and is_header(lines[0]):
            if self.header and lines[0].strip().lower() != self.header.encode():
                return False
            lines = lines[1:]
        # Any file is looked at so: Python's own patterns may take hours for a line with many blanks.
        of_format = pa.array(lines, pa.binary())
        of_format = of_format.filter(pc.invert(pc.match_substring_regex(of_format, self.ignored or _BLANK)))
        fitting = pc.match_substring_regex(of_format[:SNIFFED_LINES], self.whole)
        return len(fitting) > 0 and fitting.true_count >= SNIFFED_SHARE * len(fitting)


@dataclass
class Draft:
    """Records made of columns, one for each line, and what is wrong with which.

    Attributes
    ----------
    records : ndarray
    problems : list of (ndarray of bool, str)
        Lines that are wrong, and what was expected.
    """

    records: np.ndarray
    problems: list[tuple[np.ndarray, str]] = field(default_factory=list)

    def require(self, fine: np.ndarray, expected: str) -> None:
        """Every line has to be fine."""
        if not fine.all():
            self.problems.append((~fine, expected))

    def set_times(self, start_ns: np.ndarray, duration_ns: np.ndarray | None) -> None:
        """Put times into the records; negative = not a time that can be, no durations = 0."""
        self.require(start_ns >= 0, "a time of 0 to 2^63 ns")
        self.records["start_ns"] = start_ns
        if duration_ns is not None:
            self.require(duration_ns >= 0, "a response time of 0 to 2^63 ns")
            self.records["duration_ns"] = duration_ns


def is_header(line: bytes) -> bool:
    """A first line without a digit names the columns."""
    return not re.search(rb"\d", line)


def line_blocks(reading: Reading, *, header: bool = False) -> Iterator[tuple[int, bytes]]:
    """Whole lines, some MiB at a time, and the number of the first; a header line, known or seen, is left out.

    Raises
    ------
    FlextraceError
        A line is longer than any line of a trace.
    """
    rest, number = b"", 1
    with opened(reading.path) as stream:
        while data := stream.read(BLOCK_BYTES):
            end = data.rfind(b"\n") + 1
            if not end and len(rest) + len(data) > LINE_BYTES_MAX:
                raise FlextraceError(f"{reading.path} line {number} is longer than {LINE_BYTES_MAX} bytes: not a trace")
            block, rest = (rest + data[:end], data[end:]) if end else (b"", rest + data)
            if block:
                yield _without_header(number, block, header)
                number += block.count(b"\n")
    if rest:
        yield _without_header(number, rest + b"\n", header)


def _without_header(number: int, block: bytes, header: bool) -> tuple[int, bytes]:
    block = block.removeprefix(BYTE_ORDER_MARK) if number == 1 else block
    end = block.index(b"\n") + 1
    return (2, block[end:]) if number == 1 and (header or is_header(block[:end])) else (number, block)


def split_lines(block: bytes) -> pa.BinaryArray:
    """The lines with their ends; nothing is copied."""
    ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n")) + 1
    offsets = np.zeros(len(ends) + 1, np.int32)
    offsets[1:] = ends
    return pa.Array.from_buffers(pa.binary(), len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(block)])


def records_of_lines(
    reading: Reading, shape: LineShape, convert: Callable[[Columns], Draft], *, header: bool = False
) -> Iterator[np.ndarray]:
    """The records of a file, an array for each block of it.

    Parameters
    ----------
    reading : Reading
    shape : LineShape
    convert : callable
        From columns to records.
    header : bool
        Whether the first line is one, even with a digit in it.

    Raises
    ------
    FlextraceError
        A line is malformed, and such lines are not to be left out.
    """
    for number, whole in line_blocks(reading, header=header):
        block = shape.uninterrupted(shape.records_in(whole))
        columns = _columns_by_delimiter(reading, shape, block) if shape.delimiter else None
        draft = convert(columns) if columns is not None else None
        if draft is None or draft.problems:
            draft = _draft_by_pattern(reading, shape, number, block, convert)
        yield draft.records
        if len(block) < len(whole):
            return


def _columns_by_delimiter(reading: Reading, shape: LineShape, block: bytes) -> Columns | None:
    """Columns of a block in which nothing is unexpected; None of any other."""
    used = [it for it in shape.fields if it.kind != "unused"]
    units = {it.name: shape.units.get(it.name, reading.time_unit) for it in used}
    types = {
        it.name: pa.decimal128(DECIMAL_DIGITS, TIME_DIGITS.get(units[it.name], 0))
        if it.kind == "time"
        else TYPES[it.kind]
        for it in used
    }
    try:
        table = csv.read_csv(
            pa.BufferReader(block),
            csv.ReadOptions(column_names=[it.name for it in shape.fields], block_size=CSV_BLOCK_BYTES),
            csv.ParseOptions(delimiter=shape.delimiter, quote_char='"' if shape.quoted else False),
            csv.ConvertOptions(column_types=types, include_columns=list(types), null_values=[""], check_utf8=False),
        )
    except pa.ArrowInvalid:
        return None
    columns: Columns = {}
    for it in used:
        column = table[it.name]
        if it.kind == "text":
            columns[it.name] = column.unify_dictionaries().combine_chunks()
        elif it.kind == "time":
            columns[it.name] = nanoseconds(column.combine_chunks(), units[it.name])
        else:
            columns[it.name] = column.fill_null(ABSENT).to_numpy()
    return columns


def _draft_by_pattern(
    reading: Reading, shape: LineShape, first: int, block: bytes, convert: Callable[[Columns], Draft]
) -> Draft:
    lines = split_lines(block)
    found = pc.extract_regex(lines, shape.whole)
    matched = found.is_valid().to_numpy(zero_copy_only=False)
    others = np.flatnonzero(~matched)
    allowed = pc.match_substring_regex(lines.take(pa.array(others)), f"{shape.ignored or _BLANK}|{_BLANK}")
    malformed = [(at, shape.expected) for at in others[~allowed.to_numpy(zero_copy_only=False)].tolist()]
    rows = np.flatnonzero(matched)
    found = found.take(pa.array(rows))
    draft = convert(
        {
            it.name: _column(found.field(it.name), it.kind, shape.units.get(it.name, reading.time_unit), shape.quoted)
            for it in shape.fields
            if it.kind != "unused"
        }
    )
    fine = np.ones(len(rows), bool)
    for wrong, expected in draft.problems:
        malformed += [(rows[at], expected) for at in np.flatnonzero(wrong & fine).tolist()]
        fine &= ~wrong
    texts = lines.take(pa.array([at for at, _ in malformed], pa.int64())).to_pylist()
    reading.bad(
        (first + int(at), expected, text.decode(errors="replace"))
        for (at, expected), text in zip(malformed, texts, strict=True)
    )
    return Draft(draft.records[fine])


def _column(texts: pa.Array, kind: Kind, unit: str, quoted: bool) -> Any:
    if kind == "text" and not quoted:
        return texts.dictionary_encode()
    if kind == "text":
        bare = pc.replace_substring(pc.replace_substring_regex(texts, r'^"((?s).*)"$', r"\1"), '""', '"')
        return pc.if_else(pc.starts_with(texts, '"'), bare, texts).dictionary_encode()
    # A group that a line leaves out is empty there.
    strings = pc.if_else(pc.equal(texts, pa.scalar(b"", texts.type)), pa.scalar(None, texts.type), texts)
    strings = strings.cast(pa.string())
    if kind == "integer":
        return strings.cast(pa.int64()).fill_null(ABSENT).to_numpy(zero_copy_only=False)
    digits = TIME_DIGITS.get(unit, 0)
    kind = pa.decimal128(DECIMAL_DIGITS, digits)
    if pc.any(pc.match_substring_regex(strings, "[eE]")).as_py():
        return nanoseconds(pa.array([_decimal(text, digits) for text in strings.to_pylist()], kind), unit)
    return nanoseconds(pc.replace_substring_regex(strings, rf"(\.\d{{{digits}}})\d+", r"\1").cast(kind), unit)


def _decimal(text: str | None, digits: int) -> Decimal | None:
    """A number that may have an exponent, without what is behind its last digit that counts; -1 if it is too large."""
    if text is None:
        return None
    value = Decimal(text)
    return Decimal(-1) if value.adjusted() >= SECONDS_DIGITS else value.quantize(Decimal(1).scaleb(-digits), ROUND_DOWN)


def nanoseconds(times: pa.Decimal128Array, unit: str) -> np.ndarray:
    """Exact times; `ABSENT` where there is none, -1 where it is out of range.

    Parameters
    ----------
    times : pyarrow.Decimal128Array
        Of the scale `TIME_DIGITS`, so that what is stored is ns (or ticks): whole numbers of two words, in units of
        the last digit.
    unit : str
    """
    words = np.frombuffer(times.buffers()[1], "<i8").reshape(-1, 2)[times.offset : times.offset + len(times)]
    low, high = words[:, 0], words[:, 1]
    if unit in (FILETIME, TICKS):
        origin = FILETIME_OF_1970 if unit == FILETIME else 0
        fits = (high == 0) & (low >= origin) & (low - origin < 2**63 // NS_PER_TICK)
        whole = np.where(fits, (np.where(fits, low, origin) - origin) * NS_PER_TICK, -1)
    else:
        whole = np.where((high == 0) & (low >= 0), low, -1)
    return np.where(times.is_null().to_numpy(zero_copy_only=False), ABSENT, whole) if times.null_count else whole


def number_of_text(column: pa.DictionaryArray, number: Callable[[str], int]) -> np.ndarray:
    """The numbers that texts stand for, int64, shape (n,); `number` is called once for each different text."""
    known = [number(text.decode("utf-8", "surrogateescape").strip()) for text in column.dictionary.to_pylist()]
    if column.null_count:
        known.append(number(""))
    indices = column.indices.fill_null(len(known) - 1).to_numpy(zero_copy_only=False)
    return np.array(known, np.int64)[indices] if known else np.zeros(0, np.int64)

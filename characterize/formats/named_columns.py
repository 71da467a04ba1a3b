# SPDX-License-Identifier: Apache-2.0
"""Turns columns that have names into IO, FILEOP or BLOCK records; what CSV and Parquet tables of any origin share.

A table with paths or files becomes operations of an application, any other block requests. The names of flextrace's own
exports carry everything; of other tables the usual names are understood, and ``--columns`` gives the rest theirs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from characterize.errors import FlextraceError
from characterize.formats.block_records import block_draft
from characterize.formats.file_numbers import FileNumbers
from characterize.formats.file_operations import (
    FILEOP_BASE,
    Moments,
    divided,
    moves_nothing,
    operation_of,
    operations_draft,
)
from characterize.formats.lines import ABSENT, DECIMAL, INTEGER, Columns, Draft, Field, Kind, number_of_text
from characterize.formats.reading import FILETIME, TICKS, TIME_DIGITS, Chunk, Reading
from characterize.layout import NOT_MEASURED_U64, BlockForm, BlockOp, IoOp, RecordKind

# flextrace's name of a column: what other tables call it.
SYNONYMS = {
    "start": ("time", "timestamp", "ts", "start_time", "arrival"),
    "duration": ("latency", "response", "response_time", "responsetime", "rt", "elapsed"),
    "op": ("type", "opcode", "operation", "rw", "iotype", "io_type", "cmd"),
    "offset": ("offset_bytes", "byte_offset"),
    "sector": ("lba", "lbn", "block", "blkno"),
    "bytes": ("size", "length", "len", "size_bytes", "asked_bytes"),
    "sectors": ("blocks", "bcount"),
    "device": ("volume", "disk", "dev", "device_id", "disknumber", "volumeid", "devno", "asu"),
    "path": ("filename", "file_path"),
    "file": ("file_id", "inode"),
    "thread": ("tid",),
    "process": ("pid",),
    "result": ("ret", "done_bytes"),
    "queued": (),
    **dict.fromkeys(("flags", "source", "status", "form", "id", "cause", "argument", "missed_bytes"), ()),
    "processor_share": (),
}
OTHERWISE = {"offset": "sector", "sector": "offset", "bytes": "sectors", "sectors": "bytes"}
"""Who names one of them by --columns does not mean the other, whatever a column is called."""
TIMES = ("start", "duration", "queued")
TEXTS = ("op", "device", "path")
DEVICE_DIGITS_MAX = 10
_MAJORS, _MINORS = 1 << 12, 1 << 20
_UNIT = re.compile(rf"(.+)_({'|'.join(TIME_DIGITS)})")
_SIGNED = rf"-?{INTEGER}"
_WITH_A_SIGN = ("offset", "bytes", "result")


@dataclass(frozen=True)
class Meaning:
    """What the columns of a table are.

    Attributes
    ----------
    fields : tuple of Field
        One for each column, in order; those without a meaning are unused.
    units : dict of str to str
        Units of the times that a column's name says.
    """

    fields: tuple[Field, ...]
    units: dict[str, str]

    @property
    def names(self) -> set[str]:
        """flextrace's names of the columns that are used."""
        return {it.name for it in self.fields if it.kind != "unused"}


def meaning_of(names: Sequence[str], reading: Reading | None) -> Meaning:
    """What columns of these names are; without a reading nothing is required.

    Raises
    ------
    FlextraceError
        A column that is needed, or was named, is not there, or a column is to be what there is not.
    """
    given = {column: name for name, column in (reading.options.columns if reading else {}).items()}
    if missing := set(given) - set(names):
        raise FlextraceError(f"--columns names {', '.join(sorted(missing))}; the columns are {', '.join(names)}", 2)
    if unknown := [f"{name}={column}" for column, name in given.items() if not _name_and_unit(name)[0]]:
        raise FlextraceError(f"--columns {unknown[0]} is not understood: a column can be {', '.join(SYNONYMS)}", 2)
    fields: list[Field] = []
    units: dict[str, str] = {}
    named = {_name_and_unit(name)[0] for name in given.values()}
    for at, column in enumerate(names):
        name, unit = _name_and_unit(given.get(column, column))
        if column not in given and not named.isdisjoint((name, OTHERWISE.get(name))):
            name = ""  # --columns says that it is another one
        if name and name not in {it.name for it in fields}:
            kind: Kind = "time" if name in TIMES else "text" if name in TEXTS else "integer"
            number = _SIGNED if name in _WITH_A_SIGN else DECIMAL if kind == "time" else INTEGER
            fields.append(Field(name, kind, "" if kind == "text" else f"(?:{number})?"))
            if unit:
                units[name] = unit
        else:
            fields.append(Field(f"unused{at}", "unused"))
    if reading and units.get("start", reading.time_unit) == FILETIME:
        # A file time is a moment since 1601; how long something took is told in its ticks.
        for name in ("duration", "queued"):
            units.setdefault(name, TICKS)
    meaning = Meaning(tuple(fields), units)
    if reading:
        _require(meaning.names, names, reading)
        used = {it.name: name for it, name in zip(fields, names, strict=True) if it.kind != "unused"}
        if twice := [name for name in used.values() if names.count(name) > 1]:
            raise FlextraceError(f"{reading.path} has two columns named {twice[0]}: rename or remove one of them")
        reading.facts["columns"] = used
    return meaning


def _name_and_unit(column: str) -> tuple[str, str]:
    lower = column.strip().lower()
    with_unit = _UNIT.fullmatch(lower)
    bare, unit = (with_unit[1], with_unit[2]) if with_unit else (lower, "")
    for name, others in SYNONYMS.items():
        if lower == name or lower in others or (name in TIMES and bare in (name, *others)):
            return name, (unit if name in TIMES else "")
    return "", ""


def _require(found: set[str], names: Sequence[str], reading: Reading) -> None:
    for needed in (("start",), ("op",), ("offset", "sector"), ("bytes", "sectors", "result")):
        if not found & set(needed):
            raise FlextraceError(
                f"{reading.path} has no column for {' or '.join(needed)} among {', '.join(names)}: name it by "
                f"--columns {needed[0]}=COLUMN",
                2,
            )


class TableRecords:
    """Makes records of columns, and numbers of the names in them."""

    def __init__(self, reading: Reading, meaning: Meaning):
        self.reading, self.names = reading, meaning.names
        self.of_files = bool(self.names & {"path", "file"})
        self.files, self._order = FileNumbers(reading.file_sizes), Moments()
        self._numbered: set[int] = set()
        reading.durations_known, reading.flags_known = "duration" in self.names, "flags" in self.names
        reading.records = "file" if self.of_files else "block"
        reading.time_unit = reading.options.time_unit or meaning.units.get("start", reading.time_unit)
        reading.time_units = {name: meaning.units.get(name, reading.time_unit) for name in TIMES if name in self.names}

    def draft(self, columns: Columns) -> Draft:
        """Records of a block of the table."""
        return self._operations(columns) if self.of_files else self._requests(columns)

    def chunk(self, records: np.ndarray) -> Chunk:
        """The chunk of such records, with the files that are new in it."""
        if not self.of_files:
            return Chunk({RecordKind.BLOCK: records})
        return self.files.chunk(divided(self._order.kept(records)))

    def _places(self, columns: Columns) -> tuple[np.ndarray, np.ndarray]:
        """Offset and size in bytes; negative where they cannot be, `ABSENT` where there are none."""
        sector_bytes = self.reading.sector_bytes

        def bytes_of(sectors: np.ndarray) -> np.ndarray:
            fits = (sectors >= 0) & (sectors < 2**63 // sector_bytes)
            return np.where(fits, np.where(fits, sectors, 0) * sector_bytes, ABSENT)

        offset = columns["offset"] if "offset" in columns else bytes_of(columns["sector"])
        if "bytes" in columns:
            return offset, columns["bytes"]
        return offset, bytes_of(columns["sectors"]) if "sectors" in columns else np.maximum(columns["result"], 0)

    def _requests(self, columns: Columns) -> Draft:
        offset, size = self._places(columns)
        op = number_of_text(columns["op"], _block_op)
        durations = columns.get("duration")
        device = number_of_text(columns["device"], self._device) if "device" in columns else np.zeros(len(op), np.int64)
        draft = block_draft(
            start_ns=columns["start"], device=device, offset=offset, size=size, op=op, duration_ns=durations
        )
        draft.require(op > 0, "an operation: R, W, read, write or a name of enum block_op")
        self._copy(draft, columns, ("thread", "process", "flags", "status", "form", "cause"))
        if "queued" in columns:
            known = columns["queued"] >= 0
            draft.records["queued_ns"] = np.where(known, columns["queued"].astype(np.uint64), NOT_MEASURED_U64)
        if "form" not in columns:
            draft.records["form"] = BlockForm.REQUEST
        return draft

    def _device(self, text: str) -> int:
        """A device's own number, or one for its name; a number that a name was given already is such a name, too."""
        number = _number_of_device(text)
        if number is None or number in self.reading.named_devices:
            return self.reading.device_of(text, self._numbered)
        self._numbered.add(number)
        return number

    def _operations(self, columns: Columns) -> Draft:
        offset, size = self._places(columns)
        op = number_of_text(columns["op"], operation_of)
        result = columns.get("result", np.where(op < FILEOP_BASE, size.clip(0), 0))
        # A sync has no place; of a place of 2^63, which stands for none, becomes 0, too.
        offset, size = (np.where(moves_nothing(op, result) & (it == ABSENT), 0, it) for it in (offset, size))
        draft = operations_draft(
            start_ns=columns["start"],
            op=op,
            file=self._file(columns),
            offset=offset,
            size=size,
            result=result,
            duration_ns=columns.get("duration"),
            missed_bytes=columns.get("missed_bytes"),
        )
        draft.require(op > 0, "an operation: R, W, read, write or a name of enum fileop")
        self._copy(draft, columns, ("thread", "process", "flags", "source", "id", "processor_share"))
        return draft

    def _file(self, columns: Columns) -> np.ndarray:
        """Number of each row's file: the given one, or one for each path."""
        if "file" not in columns:
            return number_of_text(columns["path"], self.files.number)
        file = columns["file"]
        known, first = np.unique(file, return_index=True)
        paths = columns["path"].take(pa.array(first)).to_pylist() if "path" in columns else [b""] * len(known)
        for number, path in zip(known.tolist(), paths, strict=True):
            if number > 0:
                self.files.add(number, path.decode("utf-8", "surrogateescape"))
        return file

    def _copy(self, draft: Draft, columns: Columns, names: Sequence[str]) -> None:
        for name in names:
            if name in columns:
                limit = 2 ** (8 * draft.records.dtype[name].itemsize)
                values = np.where(columns[name] == ABSENT, 0, columns[name])
                draft.require((values >= 0) & (values < limit), f"{name} of 0 to {limit - 1}")
                draft.records[name] = values.clip(0)


def _number_of_device(text: str) -> int | None:
    """Of MAJOR:MINOR, or of a number of 32 bits; a longer one, as of volumes of a cloud, is a name."""
    if numbers := re.fullmatch(r"(\d{1,4})[:,](\d{1,7})", text):
        major, minor = int(numbers[1]), int(numbers[2])
        return major << 20 | minor if major < _MAJORS and minor < _MINORS else None
    is_number = text.isdecimal() and len(text) <= DEVICE_DIGITS_MAX and int(text) < 2**32
    return int(text) if is_number else None


def _block_op(text: str) -> int:
    operation = operation_of(text)
    if operation in (IoOp.READ, IoOp.WRITE):
        return BlockOp.READ if operation == IoOp.READ else BlockOp.WRITE
    return BlockOp.__members__.get(text.upper(), 0)

# SPDX-License-Identifier: Apache-2.0
"""Turns records of one kind into the columns of an archive, and back: a column per field, under the field's name.

What the columns cannot say (a kind or a reserved field of a newer format, text that is not UTF-8) is noticed by turning
them back, and such a record stands beside them as it is, in the column ``raw``. So an archive loses nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, IntFlag

import numpy as np
import pandas as pd
import pyarrow as pa

from characterize.layout import (
    RECORD_DTYPE,
    TRACE_RECORD_BYTES,
    BlockDataClass,
    BlockFlag,
    BlockForm,
    BlockOp,
    FileFlag,
    Fileop,
    FileType,
    IoFlag,
    IoOp,
    RecordKind,
    Source,
)

POSITION = "record"
RAW = "raw"
ABOUT = (
    "One row per record of a flextrace trace. kind says which fields a row has; the others are null, as is what was "
    "not measured. 'record' is the record's place in the trace, and so the order of the rows. 'raw' holds whole those "
    "records that the columns cannot express, and counts instead of them. A FILE row has its path, which the TEXT "
    "records behind it carry in pieces. Fields, units and numbers are those of bpf/trace_format.h."
)
_NUMBERED: dict[str, type[IntEnum] | type[IntFlag]] = {
    "kind": RecordKind,
    "op of IO": IoOp,
    "op of FILEOP": Fileop,
    "op of BLOCK": BlockOp,
    "source": Source,
    "type": FileType,
    "form": BlockForm,
    "class": BlockDataClass,
    "flags of IO and FILEOP": IoFlag,
    "flags of FILE": FileFlag,
    "flags of BLOCK": BlockFlag,
}
NUMBERS = {name: {member.value: member.name for member in numbers} for name, numbers in _NUMBERED.items()}

# ~0 in a record is null in an archive: a mean of such a column is then right.
_NULL_IF_NOT_MEASURED = ("missed_bytes", "queued_ns", "resident_bytes")
_PATH = "path"
# Chosen by measuring (docs/decisions/0008-archive.md).
_DELTA = (POSITION, "start_ns", "time_ns", "woken_ns", "id")
_BYTES_APART = ("duration_ns", "queued_ns", "slept_ns", "offset", "sector", "cause", "argument", "length")
STATISTICS = (POSITION, "kind", "start_ns", RAW)
"""Columns that a reader may choose row groups by; those of the others would be most of a small archive."""
_CACHED_RECORDS = 4096  # 256 KiB
ENCODINGS = dict.fromkeys(_DELTA, "DELTA_BINARY_PACKED") | dict.fromkeys(_BYTES_APART, "BYTE_STREAM_SPLIT")


def fields_of(kind: int) -> list[str]:
    """The fields of a record kind that have a column; none for a kind of a newer format."""
    names = RECORD_DTYPE[RecordKind(kind)].names if kind in RECORD_DTYPE else ()
    return [name for name in names or () if name != "kind" and not name.startswith("reserved")]


def _schema() -> pa.Schema:
    types: dict[str, np.dtype] = {}
    for kind, dtype in RECORD_DTYPE.items():
        for name in fields_of(kind):
            types[name] = np.promote_types(types.get(name, dtype[name]), dtype[name])
    columns = [(POSITION, pa.uint64()), ("kind", pa.uint8())]
    columns += [(name, pa.from_numpy_dtype(it) if it.kind in "iu" else pa.string()) for name, it in types.items()]
    return pa.schema([*columns, (_PATH, pa.string()), (RAW, pa.binary(TRACE_RECORD_BYTES))])


def _pandas_metadata(schema: pa.Schema) -> str:
    """Makes pandas read integers with nulls as such, and not as floats, which lose digits of times and ids."""
    dtypes = {
        it.name: str(it.type).replace("ui", "UI").replace("int", "Int") if pa.types.is_integer(it.type) else "object"
        for it in schema
    }
    frame = pd.DataFrame({name: pd.Series(dtype=dtype) for name, dtype in dtypes.items()})
    return pa.Table.from_pandas(frame, preserve_index=False).schema.metadata[b"pandas"].decode()


SCHEMA = _schema()
_LACKED_BY_4 = {"large_folio_order": 0}
_LACKED_BY_3 = {"large_folios": 0, **_LACKED_BY_4}
_LACKED_BY_2 = {"wakes": 0, "waker": 0, "woken_ns": 0, "slept_ns": 0, **_LACKED_BY_3}
ADDED = {
    "flextrace.archive/1": {"processor_share": 0, **_LACKED_BY_2},
    "flextrace.archive/2": _LACKED_BY_2,
    "flextrace.archive/3": _LACKED_BY_3,
    "flextrace.archive/4": _LACKED_BY_4,
    "flextrace.archive/5": {},
}
"""By schema of an older archive, the columns that it lacks, and what its records have there (5: it knew no HOLE)."""
PANDAS_METADATA = _pandas_metadata(SCHEMA)


def table_of(kind: int, records: np.ndarray, positions: np.ndarray, paths: Mapping[int, str]) -> pa.Table:
    """Columns of records of one kind.

    Parameters
    ----------
    kind : int
    records : ndarray of uint8, shape (n, 64)
    positions : ndarray of uint64, shape (n,)
        Their places in the trace.
    paths : dict of int to str
        Paths of files, for the column that readers without flextrace want.
    """
    columns = {POSITION: pa.array(positions), "kind": pa.array(np.full(len(records), kind, np.uint8))}
    if kind in RECORD_DTYPE:
        rows = records.view(RECORD_DTYPE[RecordKind(kind)]).reshape(-1)
        columns |= {name: _column(name, np.ascontiguousarray(rows[name])) for name in fields_of(kind)}
        if kind == RecordKind.FILE:
            known = zip(rows["file"].tolist(), rows["path_bytes"].tolist(), strict=True)
            columns[_PATH] = pa.array([_whole_path(paths.get(file), size) for file, size in known], pa.string())
    rebuilt = np.zeros_like(records)
    fill(rebuilt, kind, columns)
    differs = (rebuilt.view(np.uint64) != records.view(np.uint64)).any(axis=1)
    if differs.any():
        rest = [record.tobytes() if keep else None for record, keep in zip(records, differs.tolist(), strict=True)]
        columns[RAW] = pa.array(rest, SCHEMA.field(RAW).type)
    return pa.table(
        [columns[it.name] if it.name in columns else pa.nulls(len(records), it.type) for it in SCHEMA], schema=SCHEMA
    )


def _column(name: str, values: np.ndarray) -> pa.Array:
    kind = SCHEMA.field(name).type
    if pa.types.is_string(kind):
        return pa.array([_text(bytes(it)) for it in values.tolist()], kind)
    absent = values == np.iinfo(values.dtype).max if name in _NULL_IF_NOT_MEASURED else None
    return pa.array(values, mask=absent).cast(kind)


def _text(field: bytes) -> str | None:
    try:
        return field.rstrip(b"\0").decode()
    except UnicodeDecodeError:
        return None


def _whole_path(path: str | None, path_bytes: int) -> str | None:
    """The path, printable whatever its encoding; None if pieces of it are missing."""
    content = b"" if path is None else path.encode("utf-8", "surrogateescape")
    return content.decode("utf-8", "backslashreplace") if path is not None and len(content) == path_bytes else None


def fill(records: np.ndarray, kind: int, columns: Mapping[str, pa.Array]) -> None:
    """Turn columns back into records.

    Parameters
    ----------
    records : ndarray of uint8, shape (n, 64)
        All zero; filled.
    kind : int
    columns : dict of str to pyarrow.Array
        At least those of `fields_of`; ``raw`` where it is known to be needed.

    Raises
    ------
    ValueError
        A field is null in some row: not what `table_of` made.
    """
    whole = np.zeros(len(records), bool)
    if RAW in columns:
        whole = columns[RAW].is_valid().to_numpy(zero_copy_only=False)
    # Of a kind that the archive's writer did not know all stand whole, and its columns are null.
    if kind in RECORD_DTYPE and not (len(whole) and whole.all()):
        rows = records.view(RECORD_DTYPE[RecordKind(kind)]).reshape(-1)
        rows["kind"] = kind
        fields = {name: _field(name, rows.dtype[name], columns[name]) for name in fields_of(kind)}
        # In pieces that stay in the processor's cache while all of their fields are filled.
        for first in range(0, len(rows), _CACHED_RECORDS):
            piece = rows[first : first + _CACHED_RECORDS]
            for name, values in fields.items():
                piece[name] = values[first : first + _CACHED_RECORDS]
    if whole.any():
        content = b"".join(columns[RAW].drop_null().to_pylist())
        records[whole] = np.frombuffer(content, np.uint8).reshape(-1, TRACE_RECORD_BYTES)


def _field(name: str, dtype: np.dtype, column: pa.Array) -> np.ndarray:
    if pa.types.is_string(column.type):
        content = np.array([(it or "").encode() for it in column.to_pylist()], f"S{dtype.itemsize}")
        return content.view(dtype)
    if column.null_count:
        if name not in _NULL_IF_NOT_MEASURED:
            raise ValueError(f"column {name} has {column.null_count} nulls")
        column = column.fill_null(np.iinfo(dtype).max)
    return column.to_numpy()

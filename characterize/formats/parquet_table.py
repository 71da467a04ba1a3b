# SPDX-License-Identifier: Apache-2.0
"""Turns a Parquet table that is no archive of flextrace's into chunks of records, a batch of rows each.

What the columns mean is said in `characterize.formats.named_columns`; what is named a line in an error is the number of
the row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from characterize.errors import FlextraceError
from characterize.formats.lines import ABSENT, DECIMAL_DIGITS, Columns, Field, nanoseconds
from characterize.formats.named_columns import TableRecords, meaning_of
from characterize.formats.reading import FILETIME, TICKS, TIME_DIGITS, Chunk, Reading

BATCH_ROWS = 1 << 17
MAGIC = b"PAR1"
_ARCHIVE_COLUMNS = {"record", "kind", "raw"}


def looks_like(head: bytes) -> bool:
    """Whether a file is Parquet."""
    return head.startswith(MAGIC)


def chunks(reading: Reading) -> Iterator[Chunk]:
    """Read a table.

    Raises
    ------
    FlextraceError
        It cannot be read, is an archive that another program wrote anew, or a column that is needed is not there.
    """
    try:
        # Not by its name, which need not be UTF-8.
        with reading.path.open("rb") as stream, parquet.ParquetFile(stream) as file:
            names = file.schema_arrow.names
            if set(names) >= _ARCHIVE_COLUMNS:
                raise FlextraceError(
                    f"{reading.path} has the columns of an archive of a trace, but not its checksum: only what "
                    "'flextrace export' wrote, unchanged, can be read"
                )
            meaning = meaning_of(names, reading)
            table = TableRecords(reading, meaning)
            used = {name: it for name, it in zip(names, meaning.fields, strict=True) if it.kind != "unused"}
            done = 0
            for batch in file.iter_batches(BATCH_ROWS, columns=list(used)):
                columns: Columns = {}
                for name, it in used.items():
                    try:
                        unit = meaning.units.get(it.name, reading.time_unit)
                        columns[it.name] = _column(batch.column(name), it, unit)
                    except pa.ArrowException as error:
                        raise FlextraceError(
                            f"{reading.path}, rows {done + 1} to {done + len(batch)}: column {name} is to be {it.kind} "
                            f"and holds {batch.column(name).type}: {str(error).splitlines()[0]}"
                        ) from error
                draft = table.draft(columns)
                fine = np.ones(len(batch), bool)
                for wrong, expected in draft.problems:
                    rows = np.flatnonzero(wrong & fine).tolist()
                    reading.bad((done + row + 1, expected, str(batch.slice(row, 1).to_pylist()[0])) for row in rows)
                    fine &= ~wrong
                yield table.chunk(draft.records[fine])
                done += len(batch)
    except (pa.ArrowException, OSError) as error:
        raise FlextraceError(f"cannot read {reading.path}: {str(error).splitlines()[0]}") from error


def _column(values: pa.Array, field: Field, unit: str) -> Any:
    kind = values.type
    if field.kind == "text":
        texts = values.cast(pa.string()) if not pa.types.is_dictionary(kind) else values.dictionary_decode()
        return texts.fill_null("").cast(pa.binary()).dictionary_encode()
    if field.kind == "integer":
        # What 64 bits without a sign have above 2^63 is negative with one.
        whole = values.cast(pa.int64(), safe=not pa.types.is_uint64(kind))
        return whole.fill_null(ABSENT).to_numpy(zero_copy_only=False)
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        wide = pa.timestamp("ns") if pa.types.is_timestamp(kind) else pa.duration("ns")
        return values.cast(wide).cast(pa.int64()).fill_null(ABSENT).to_numpy(zero_copy_only=False)
    digits = TIME_DIGITS.get(unit, 0)
    if pa.types.is_floating(kind) and unit in {FILETIME, TICKS}:
        values = values.cast(pa.int64(), safe=False)
    elif pa.types.is_floating(kind):
        # A float has no exact decimals: to the nearest nanosecond.
        scaled = np.rint(values.fill_null(-1).to_numpy(zero_copy_only=False) * 10.0**digits)
        return np.where((scaled >= 0) & (scaled < 2.0**63), scaled, -1).astype(np.int64)
    return nanoseconds(pc.cast(values, pa.decimal128(DECIMAL_DIGITS, digits)), unit)

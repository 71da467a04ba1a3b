# SPDX-License-Identifier: Apache-2.0
"""Turns a trace file into a compressed archive (one Parquet file), and back, byte by byte.

The records of each `BATCH_RECORDS` are sorted by kind, a row group for each, and keep their place in the column
``record``; so every column of a row group is either full or empty. The header, and what stands behind the records, are
in the file's metadata. Memory is bounded by one batch, whatever the size of the trace, but for `read`, which makes a
Trace. docs/decisions/0008-archive.md says why.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from characterize.errors import FlextraceError
from characterize.layout import (
    HEADER_DTYPE,
    RECORD_DTYPE,
    TEXT_DTYPE,
    TRACE_HEADER_BYTES,
    TRACE_PATH_BYTES_MAX,
    TRACE_RECORD_BYTES,
    TRACE_TEXT_BYTES,
    HeaderFlag,
    RecordKind,
)
from characterize.trace import Content, paths_of
from characterize.trace_files.archive_columns import (
    ABOUT,
    ADDED,
    ENCODINGS,
    NUMBERS,
    PANDAS_METADATA,
    POSITION,
    RAW,
    SCHEMA,
    STATISTICS,
    fields_of,
    fill,
    table_of,
)
from characterize.trace_files.footer_checksum import add_checksum, checked_footer
from characterize.trace_files.new_file import new_file
from characterize.trace_files.provenance import tool_version
from characterize.trace_files.trace_head import check_head, count_records, json_text, read_head

SCHEMA_NAME = "flextrace.archive/6"
BATCH_RECORDS = 1 << 19
ZSTD_LEVEL = 3
# A crash of the machine can leave a long hole behind the last record; a JSON block is a few KiB.
TAIL_BYTES_MAX = 16 << 20
_PEEK_RECORDS = TRACE_PATH_BYTES_MAX // TRACE_TEXT_BYTES + 1
_DAMAGE = (pa.ArrowException, OSError, ValueError, KeyError, TypeError, IndexError, OverflowError, zlib.error)


@dataclass(frozen=True)
class Packed:
    """What became of a trace.

    Attributes
    ----------
    records, archive_bytes : int
    left_out_bytes : int
        Of a trace that was not closed cleanly: the hole behind its last whole record, where it was too long to keep.
    """

    records: int
    archive_bytes: int
    left_out_bytes: int


def pack(trace: Path, archive: Path, *, force: bool = False, batch_records: int = BATCH_RECORDS) -> Packed:
    """Write the archive of a trace file; it gets its name when it was read back and is equal.

    Parameters
    ----------
    trace : Path
        A trace file; an incomplete or truncated one is taken up to its last whole record, with what is behind it.
    archive : Path
    force : bool
        Overwrite an existing archive.
    batch_records : int
        Records in memory at once, and at most in a row group.

    Raises
    ------
    FlextraceError
        The trace cannot be read, the archive cannot be written, or reads back differently.
    """
    head, file_bytes = read_head(trace)
    header = np.frombuffer(head, HEADER_DTYPE)[0]
    records = count_records(trace, header, file_bytes, [])
    with new_file(archive, force=force) as output:
        digest = hashlib.sha256(head)
        with _writer(output) as writer:
            packed = 0
            for content in _batches(trace, header, records, batch_records):
                paths = paths_of(content[content[:, 0] == RecordKind.TEXT].view(TEXT_DTYPE).reshape(-1))
                batch = content[:batch_records]
                digest.update(batch.data)
                kinds = np.ascontiguousarray(batch[:, 0])
                for kind in np.unique(kinds).tolist():
                    rows = np.flatnonzero(kinds == kind)
                    table = table_of(kind, batch.take(rows, axis=0), (rows + packed).astype(np.uint64), paths)
                    writer.write_table(table, row_group_size=batch_records)
                packed += len(batch)
            tail = _tail(trace, header, packed, file_bytes)
            digest.update(tail)
            text = json_text(trace, header, head, file_bytes) or b""
            document = {
                "schema": SCHEMA_NAME,
                "made_by": f"flextrace {tool_version()}",
                "about": ABOUT,
                "numbers": NUMBERS,
                "records": packed,
                "batch_records": batch_records,
                "sha256": digest.hexdigest(),
                "head": _as_text(head),
                "tail": _as_text(tail),
            }
            writer.add_key_value_metadata(
                {
                    "flextrace": json.dumps(document),
                    "flextrace.trace": text.decode(errors="backslashreplace"),
                    "pandas": PANDAS_METADATA,
                }
            )
        add_checksum(output)
        _compare(Path(output.name), digest.hexdigest(), archive)
        archive_bytes = output.tell()
    end = TRACE_HEADER_BYTES + packed * TRACE_RECORD_BYTES + len(tail)
    return Packed(packed, archive_bytes, file_bytes - end)


def _writer(output: BinaryIO) -> parquet.ParquetWriter:
    return parquet.ParquetWriter(
        output,
        SCHEMA,
        compression="zstd",
        compression_level=ZSTD_LEVEL,
        column_encoding=ENCODINGS,
        use_dictionary=[name for name in SCHEMA.names if name not in ENCODINGS],
        write_page_checksum=True,
        write_statistics=list(STATISTICS),
        # Arrow's own copy of the schema has no checksum and says nothing new.
        store_schema=False,
    )


def _read_at(trace: Path, offset: int, size: int) -> bytes:
    """Bytes of the trace; an error is not one of the archive that is being written."""
    try:
        with trace.open("rb") as stream:
            stream.seek(offset)
            content = stream.read(size)
    except OSError as error:
        raise FlextraceError(f"cannot read trace {trace}: {error.strerror}") from error
    if len(content) < size:
        raise FlextraceError(f"{trace} became shorter while it was read: export it when nothing writes to it")
    return content


def _batches(trace: Path, header: np.void, records: int, batch_records: int) -> Iterator[np.ndarray]:
    """The records of a trace file up to a hole, some at a time, and behind each batch those that may name its files."""
    ends_at_hole = bool(int(header["flags"]) & HeaderFlag.INCOMPLETE)
    for first in range(0, records, batch_records):
        size = min(batch_records + _PEEK_RECORDS, records - first) * TRACE_RECORD_BYTES
        content = _read_at(trace, TRACE_HEADER_BYTES + first * TRACE_RECORD_BYTES, size)
        batch = np.frombuffer(content, np.uint8).reshape(-1, TRACE_RECORD_BYTES)
        holes = batch[:, 0] == 0
        if ends_at_hole and holes.any():
            batch = batch[: int(np.argmax(holes))]
            yield batch
            if len(batch) <= batch_records:
                return
        else:
            yield batch


def _tail(trace: Path, header: np.void, records: int, file_bytes: int) -> bytes:
    """What stands behind the records: nothing, the JSON block, or the torn end of an incomplete trace."""
    end = TRACE_HEADER_BYTES + records * TRACE_RECORD_BYTES
    if file_bytes - end > TAIL_BYTES_MAX:
        if int(header["flags"]) & HeaderFlag.INCOMPLETE:
            return b""
        raise FlextraceError(
            f"cannot archive {trace}: {file_bytes - end} bytes stand behind its records, which flextrace never writes"
        )
    return _read_at(trace, end, file_bytes - end)


def _as_text(content: bytes) -> str:
    return base64.b64encode(zlib.compress(content)).decode()


def _as_bytes(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text, validate=True))


class _Archive:
    """An archive that is open: its document, and its row groups by kind. Not by its name, which need not be UTF-8."""

    def __init__(self, path: Path, stream: BinaryIO):
        self.path = path
        if not checked_footer(stream):
            raise FlextraceError(
                f"{path} is a Parquet file, but not an archive of a trace: only what 'flextrace export' wrote, "
                "unchanged, can be read"
            )
        self.file = parquet.ParquetFile(stream, page_checksum_verification=True)
        metadata = self.file.metadata
        document = json.loads(metadata.metadata[b"flextrace"])
        if document["schema"] not in (SCHEMA_NAME, *ADDED):
            raise FlextraceError(
                f"{path} has schema {document['schema']}, this flextrace reads {SCHEMA_NAME}: "
                "use the flextrace that wrote it, or a newer one"
            )
        self.added = ADDED.get(document["schema"], {})
        schema = pa.schema([column for column in SCHEMA if column.name not in self.added])
        if not self.file.schema_arrow.equals(schema):
            raise ValueError("its columns are not those of its schema")
        self.head, self.tail = _as_bytes(document["head"]), _as_bytes(document["tail"])
        self.records, self.batch_records = int(document["records"]), int(document["batch_records"])
        self.sha256 = document["sha256"]
        position, raw = (schema.names.index(name) for name in ("kind", RAW))
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
        self.kinds = [int(group.column(position).statistics.min) for group in groups]
        self.rows = [group.num_rows for group in groups]
        # Without statistics it may have some.
        counts = [group.column(raw).statistics for group in groups]
        self.has_raw = [it is None or it.null_count != rows for it, rows in zip(counts, self.rows, strict=True)]
        if sum(self.rows) != self.records:
            raise ValueError(f"{sum(self.rows)} of {self.records} records are there")

    def group(self, number: int, *more: str) -> dict[str, pa.Array]:
        """The columns of one row group, those of its kind and `more`."""
        kind = self.kinds[number]
        names = ["kind", *fields_of(kind), *more, *([RAW] if self.has_raw[number] else [])]
        there = [name for name in names if name not in self.added]
        table = self.file.read_row_group(number, columns=there, use_threads=False).combine_chunks()
        columns = {name: table.column(name).chunk(0) for name in there}
        for name in set(names) - set(there):
            columns[name] = pa.repeat(pa.scalar(self.added[name], SCHEMA.field(name).type), len(table))
        found = columns["kind"]
        if len(table) != self.rows[number] or found.null_count or (found.to_numpy() != kind).any():
            raise ValueError(f"row group {number} is not of one kind")
        return columns

    def batches(self, begin: int = 0, end: int | None = None) -> Iterator[np.ndarray]:
        """All records in the order of the trace, or those of some batches: `batch_records` at once, shape (n, 64)."""
        records = self.records if end is None else min(self.records, end * self.batch_records)
        number = int(np.searchsorted(np.cumsum(self.rows), begin * self.batch_records, side="right"))
        for first in range(begin * self.batch_records, records, self.batch_records):
            batch = np.zeros((min(self.batch_records, self.records - first), TRACE_RECORD_BYTES), np.uint8)
            found = np.zeros(len(batch), bool)
            while not found.all():
                columns = self.group(number, POSITION)
                rows = columns[POSITION].to_numpy() - np.uint64(first)
                part = np.zeros((len(rows), TRACE_RECORD_BYTES), np.uint8)
                fill(part, self.kinds[number], columns)
                if found[rows].any():
                    raise ValueError(f"row group {number} repeats a record")
                batch[rows], found[rows] = part, True
                number += 1
            yield batch

    def pieces(self) -> Iterator[bytes]:
        """The content of the trace file from its begin to its end."""
        yield self.head
        for batch in self.batches():
            yield batch.tobytes()
        yield self.tail


@contextmanager
def _opened(path: Path) -> Iterator[_Archive]:
    """An archive to read; whatever goes wrong with its content is one message."""
    try:
        with path.open("rb") as stream:
            yield _Archive(path, stream)
    except _DAMAGE as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise FlextraceError(
            f"cannot read archive {path}: it is cut off or damaged ({reason}): use another copy of it"
        ) from error


def read(path: Path) -> Content:
    """Everything of an archive that a Trace is made of.

    Raises
    ------
    FlextraceError
        It is damaged, of a newer version, or a Parquet file of something else.
    """
    with _opened(path) as archive:
        check_head(path, archive.head)
        kinds, rows = (np.array(of_groups, np.int64) for of_groups in (archive.kinds, archive.rows))
        arrays = {kind: np.zeros(int(rows[kinds == kind].sum()), dtype) for kind, dtype in RECORD_DTYPE.items()}
        filled = dict.fromkeys(arrays, 0)
        positions: dict[int, list[np.ndarray]] = {RecordKind.BLOCK: [], RecordKind.BLOCK_DATA: []}
        for number, kind in enumerate(archive.kinds):
            if kind not in arrays:
                continue
            columns = archive.group(number, *([POSITION] if kind in positions else []))
            first = filled[RecordKind(kind)]
            filled[RecordKind(kind)] = first + archive.rows[number]
            part = arrays[RecordKind(kind)][first : filled[RecordKind(kind)]]
            fill(part.view(np.uint8).reshape(-1, TRACE_RECORD_BYTES), kind, columns)
            if kind in positions:
                positions[kind].append(columns[POSITION].to_numpy())
        blocks, pieces = (np.concatenate([np.zeros(0, np.uint64), *positions[kind]]) for kind in positions)
        return Content(
            head=archive.head,
            file_bytes=_file_bytes(archive),
            arrays=arrays,
            block_before=np.searchsorted(blocks, pieces) - 1,
            json_text=_json_text(archive),
        )


def read_frame(path: Path) -> tuple[bytes, int, bytes | None]:
    """Header of the trace, size of its file, and its JSON block (None if it is cut off); raises as `read` does."""
    with _opened(path) as archive:
        check_head(path, archive.head)
        return archive.head, _file_bytes(archive), _json_text(archive)


def iterate(path: Path, begin: int = 0, end: int | None = None) -> Iterator[np.ndarray]:
    """All records in the order of the trace, or those of some batches, shape (n, 64) each; raises as `read` does."""
    with _opened(path) as archive:
        yield from archive.batches(begin, end)


def size_of(path: Path) -> tuple[int, int]:
    """Number of records, and of those in a batch; raises as `read` does."""
    with _opened(path) as archive:
        return archive.records, archive.batch_records


def _file_bytes(archive: _Archive) -> int:
    return TRACE_HEADER_BYTES + archive.records * TRACE_RECORD_BYTES + len(archive.tail)


def _json_text(archive: _Archive) -> bytes | None:
    header = np.frombuffer(archive.head, HEADER_DTYPE)[0]
    end = _file_bytes(archive) - len(archive.tail)
    offset, size = int(header["json_offset"]), int(header["json_bytes"])
    if offset + size > end + len(archive.tail):
        return None
    return (archive.head if offset < end else archive.tail)[offset - (offset >= end) * end :][:size]


def _compare(path: Path, sha256: str, name: Path) -> None:
    """Read an archive that was just written."""
    digest = hashlib.sha256()
    with _opened(path) as archive:
        for part in archive.pieces():
            digest.update(part)
    if digest.hexdigest() != sha256:
        raise FlextraceError(f"archive {name} was written but reads back differently: removed; trace kept")


def unpack(archive: Path, trace: Path, *, force: bool = False) -> int:
    """Write the trace file that an archive was made from; returns the number of its records.

    Raises
    ------
    FlextraceError
        The archive cannot be read or is damaged, or the trace cannot be written.
    """
    with new_file(trace, force=force) as output, _opened(archive) as opened:
        _expand(opened, output)
        return opened.records


def _expand(archive: _Archive, output: BinaryIO) -> None:
    digest = hashlib.sha256()
    for part in archive.pieces():
        digest.update(part)
        output.write(part)
    if digest.hexdigest() != archive.sha256:
        raise ValueError("its content does not have the checksum that was stored with it")

# SPDX-License-Identifier: Apache-2.0
"""Turns the name of a trace or of its archive into that of a trace file, for the engine, which reads nothing else."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from characterize.errors import FlextraceError
from characterize.trace_files.footer_checksum import FooterError, checked_footer

ARCHIVE_SUFFIX = ".parquet"
_PARQUET_MAGIC = b"PAR1"


def is_archive(path: Path) -> bool:
    """Whether a file is a Parquet file, an archive or not; a file that cannot be read is none."""
    try:
        if not path.is_file():  # a pipe would wait for who writes into it
            return False
        with path.open("rb") as stream:
            return stream.read(len(_PARQUET_MAGIC)) == _PARQUET_MAGIC
    except OSError:
        return False


def is_trace_archive(path: Path) -> bool:
    """Whether a file is an archive of a trace, if a damaged one; False for the Parquet files of others."""
    if not is_archive(path):
        return False
    try:
        with path.open("rb") as stream:
            return checked_footer(stream) is not None
    except FooterError:
        return True


def refuse_archive_name(path: Path) -> None:
    """Keep a trace file from getting a name by which other programs would take it for an archive.

    Raises
    ------
    FlextraceError
        The name ends in ``.parquet``.
    """
    if path.suffix.lower() == ARCHIVE_SUFFIX:
        raise FlextraceError(
            f"{path} is the name of an archive: write {path.with_suffix('.iotrace')}, then 'flextrace export' it", 2
        )


@contextmanager
def expanded(path: Path) -> Iterator[Path]:
    """The trace file itself, or that of an archive in a temporary directory (``TMPDIR``), gone afterwards.

    Raises
    ------
    FlextraceError
        The archive is damaged, or there is no room.
    """
    if not is_archive(path):
        yield path
        return
    from characterize.trace_files.archive import unpack  # noqa: PLC0415 (pyarrow is slow to import, and rarely needed)

    with tempfile.TemporaryDirectory(prefix="flextrace-") as directory:
        trace = Path(directory) / f"{path.stem}.iotrace"
        try:
            unpack(path, trace)
        except FlextraceError as error:
            if isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.ENOSPC:
                raise FlextraceError(
                    f"no room to expand {path} in {directory}: set TMPDIR to a directory with more, "
                    "or expand it with 'flextrace import' and use the trace"
                ) from error
            raise
        yield trace

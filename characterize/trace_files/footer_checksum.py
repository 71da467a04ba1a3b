# SPDX-License-Identifier: Apache-2.0
"""Turns a Parquet file into one whose footer has a checksum, and tells whether it still holds.

The format has checksums of pages but none of the footer, and Arrow ends the whole process over some damaged ones. Ours
stands in the gap before the footer, where the format lets anything stand; other readers do not see it.

    ... pages, MARK, CRC-32 of footer, length and magic (4 bytes), footer, its length (4 bytes), "PAR1"
"""

from __future__ import annotations

import struct
import zlib
from typing import BinaryIO

MARK = b"FLEXTRFT"
_END = struct.Struct("<I4s")
_CHECKSUM = struct.Struct("<8sI")


class FooterError(ValueError):
    """The footer is cut off or damaged, or has no checksum."""


def _footer(stream: BinaryIO) -> tuple[int, bytes]:
    """Where the footer begins, and all bytes from there."""
    file_bytes = stream.seek(0, 2)
    stream.seek(max(file_bytes - _END.size, 0))
    end = stream.read()
    if len(end) < _END.size or not end.endswith(b"PAR1"):
        raise FooterError("its end is missing")
    begin = file_bytes - _END.size - _END.unpack(end)[0]
    if begin < 0:
        raise FooterError("its footer is longer than the file")
    stream.seek(begin)
    return begin, stream.read()


def add_checksum(stream: BinaryIO) -> None:
    """Put the checksum before the footer of a complete Parquet file, open for reading and writing."""
    begin, footer = _footer(stream)
    stream.seek(begin)
    stream.write(_CHECKSUM.pack(MARK, zlib.crc32(footer)) + footer)
    stream.flush()


def checked_footer(stream: BinaryIO) -> bytes | None:
    """The footer of a Parquet file; None if there is no checksum before it.

    Raises
    ------
    FooterError
        It is cut off, or does not have its checksum.
    """
    begin, footer = _footer(stream)
    stream.seek(max(begin - _CHECKSUM.size, 0))
    found = stream.read(min(_CHECKSUM.size, begin))
    if len(found) < _CHECKSUM.size or not found.startswith(MARK):
        return None
    if _CHECKSUM.unpack(found)[1] != zlib.crc32(footer):
        raise FooterError("its footer does not have its checksum")
    return footer

# SPDX-License-Identifier: Apache-2.0
"""Turns a file, compressed or not, into a stream of its content; how it is compressed is seen from its first bytes."""

from __future__ import annotations

import lzma
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from characterize.errors import FlextraceError

_CODEC_OF_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bz2", b"\x04\x22\x4d\x18": "lz4"}
_XZ_MAGIC = b"\xfd7zXZ\x00"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """A stream that has ``read(bytes)``: plain, .gz, .zst, .xz, .bz2, .lz4.

    Raises
    ------
    FlextraceError
        The file cannot be read, or is not whole.
    """
    try:
        with path.open("rb") as raw:
            magic = raw.read(len(_XZ_MAGIC))
            raw.seek(0)
            codec = next((codec for start, codec in _CODEC_OF_MAGIC.items() if magic.startswith(start)), None)
            if magic == _XZ_MAGIC:
                with lzma.open(raw) as stream:
                    yield cast(BinaryIO, stream)
            elif codec:
                import pyarrow as pa  # noqa: PLC0415 (slow to import, and few files are compressed)

                yield cast(BinaryIO, pa.CompressedInputStream(pa.PythonFile(raw), codec))
            else:
                yield raw
    except (OSError, EOFError, lzma.LZMAError) as error:
        reason = getattr(error, "strerror", None) or f"its compressed content is damaged or cut off ({error})"
        raise FlextraceError(f"cannot read {path}: {reason}") from error


def head_of(path: Path, size: int) -> bytes:
    """The first bytes of the content, without a byte order mark of UTF-8; fewer of a shorter file."""
    parts = b""
    with opened(path) as stream:
        while len(parts) < size and (part := stream.read(size - len(parts))):
            parts += part
    return parts.removeprefix(BYTE_ORDER_MARK)

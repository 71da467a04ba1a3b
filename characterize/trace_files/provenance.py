# SPDX-License-Identifier: Apache-2.0
"""Turns an input file, or this process, into what a document says of its origin: path, hash, version, command."""

from __future__ import annotations

import hashlib
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from characterize.errors import FlextraceError, remedy_of

PIECE_BYTES = 1 << 20


def tool_version() -> str:
    """Version of the installed flextrace, ``unknown`` if it runs without being installed."""
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 (slow to import)

    try:
        return version("flextrace")
    except PackageNotFoundError:
        return "unknown"


def command_words() -> list[str]:
    """The command line, wherever the program is."""
    return ["flextrace", *sys.argv[1:]]


def created_now() -> str:
    """Date and time in UTC, ISO 8601, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def sha256_of(path: Path, given_up: threading.Event | None = None) -> str | None:
    """SHA-256 of a file's content, as hexadecimal digits; of what was read so far, once another thread has given it up.

    None of a pipe, which is read once.

    Raises
    ------
    FlextraceError
        The file cannot be read.
    """
    digest = hashlib.sha256()
    try:
        if path.is_fifo():
            return None
        with path.open("rb", buffering=0) as stream:
            while not (given_up and given_up.is_set()) and (piece := stream.read(PIECE_BYTES)):
                digest.update(piece)
    except OSError as error:
        raise FlextraceError(f"cannot read {path} for its hash: {error.strerror}{remedy_of(error)}") from error
    return digest.hexdigest()


def provenance_of(path: Path | None, given_up: threading.Event | None = None) -> dict[str, Any]:
    """``tool_version`` and ``input``: path, bytes, sha256 (None of a pipe); None for a trace that is not in a file."""
    source = None
    if path is not None:
        digest = sha256_of(path, given_up)
        source = {"path": str(path), "bytes": path.stat().st_size if digest else None, "sha256": digest}
    return {"tool_version": tool_version(), "input": source}

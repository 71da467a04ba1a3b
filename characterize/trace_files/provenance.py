# SPDX-License-Identifier: Apache-2.0
"""Turns an input file, or this process, into what a document says of its origin: path, hash, version, command."""

from __future__ import annotations

import hashlib
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from characterize.errors import FlextraceError


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


def sha256_of(path: Path) -> str:
    """SHA-256 of a file's content, as hexadecimal digits.

    Raises
    ------
    FlextraceError
        The file cannot be read.
    """
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise FlextraceError(f"cannot read {path} for its hash: {error.strerror}") from error


def provenance_of(path: Path | None) -> dict[str, Any]:
    """``tool_version`` and ``input`` (path, bytes, sha256; None for a trace that is not in a file)."""
    source = None if path is None else {"path": str(path), "bytes": path.stat().st_size, "sha256": sha256_of(path)}
    return {"tool_version": tool_version(), "input": source}

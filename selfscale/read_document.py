# SPDX-License-Identifier: Apache-2.0
"""Turns a file that an earlier run has written into its JSON document, or says what it is instead."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from characterize.errors import FlextraceError
from characterize.trace_files.whole_file import read_whole


def read_json(path: str | os.PathLike[str], what: str, remedy: str) -> Any:
    """What JSON a file holds.

    Parameters
    ----------
    path : path-like
    what : str
        Such a file is called; for messages.
    remedy : str
        How to have one.

    Raises
    ------
    FlextraceError
        The file cannot be read, or holds no JSON.
    """
    content = read_whole(Path(path), what)
    try:
        return json.loads(content)
    # Brackets within brackets, deeper than anybody writes them, are recursion.
    except (ValueError, RecursionError) as error:
        raise FlextraceError(f"{path} is not a {what}: it is no JSON document ({error}); {remedy}") from error


def read_document(path: str | os.PathLike[str], what: str, schema: str, remedy: str) -> dict[str, Any]:
    """The document of a schema that a file holds.

    Parameters
    ----------
    path, what, remedy
        As of `read_json`.
    schema : str
        ``NAME/VERSION``, the newest version that is understood.

    Raises
    ------
    FlextraceError
        The file cannot be read, or holds something else or a newer version.
    """
    return check_document(read_json(path, what, remedy), path, what, schema, remedy)


def check_document(document: Any, path: str | os.PathLike[str], what: str, schema: str, remedy: str) -> dict[str, Any]:
    """What a file holds, or a part of that, as the document of a schema: parameters and errors of `read_document`."""
    found = document.get("schema") if isinstance(document, dict) else None
    name, _, version = found.rpartition("/") if isinstance(found, str) else ("", "", "")
    known, _, newest = schema.rpartition("/")
    if name != known:
        raise FlextraceError(f"{path} is not a {what} but {found or 'some other JSON document'}: {remedy}")
    if not version.isdecimal() or not 1 <= int(version) <= int(newest):
        raise FlextraceError(
            f"{what} {path} has version {version}, this flextrace reads up to {newest}: use a newer one"
        )
    return document

# SPDX-License-Identifier: Apache-2.0
"""Turns a header into the warning that records are missing: lost, left out of an import, or never counted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from characterize.layout import HeaderFlag

if TYPE_CHECKING:
    from characterize.trace import Header

LOWER_BOUND = "uniqueBytes is a lower bound"
"""Ends every warning of missing records."""


def what_is_missing(header: Header) -> str:
    """The warning of a trace that lacks records: the recorder lost them, or they are lines that were malformed."""
    imported = header.metadata.get("imported", {})
    if "bad_lines" in imported:
        return f"{imported['bad_lines']} malformed lines were left out when it was imported; {LOWER_BOUND}"
    if not header.lost:
        missed = header.metadata.get("missed_runs")
        why = "its recorder was killed, or the file was cut off"
        if missed and HeaderFlag.INCOMPLETE not in header.flags:
            runs = ", ".join(f"{count} of {program}" for program, count in missed.items())
            why = f"the kernel left out runs of the recorder's programs ({runs})"
        return f"{why}: what is missing is not counted; {LOWER_BOUND}"
    lost = ", ".join(f"{count} {kind.name}" for kind, count in header.lost.items())
    return f"records were lost while recording ({lost}); {LOWER_BOUND}"


def damaged(path: Path | None, orphans: int) -> str:
    """The warning of a trace with BLOCK_DATA records whose BLOCK record is not there."""
    return f"{path} is damaged: {orphans} BLOCK_DATA records do not follow the BLOCK record they are of"

# SPDX-License-Identifier: Apache-2.0
"""Changes settings of this host for a while, and notes in memory what they were: where who has changed them is killed,
the next run puts them back (`left_behind`, `bench.lab_machines`)."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Mapping
from pathlib import Path

NOTES, NAME = Path("/dev/shm"), "flextrace-settings-"
"""Where notes are, and how their names begin, before the number of the process and that of the note."""
_serial = itertools.count()


def change(values: Mapping[Path, str], before: Mapping[Path, str]) -> Path:
    """Write values into files; the note by which `put_back` writes those before into theirs."""
    note = NOTES / f"{NAME}{os.getpid()}-{next(_serial)}"
    # First of all: who is killed in between puts back what holds.
    note.write_text("".join(f"{place} {value.strip()}\n" for place, value in before.items()))
    for place, value in values.items():
        place.write_text(value)
    return note


def put_back(note: Path) -> None:
    """Undo a change."""
    for line in note.read_text().splitlines():
        place, _, value = line.partition(" ")
        Path(place).write_text(f"{value}\n")
    note.unlink()


def put_back_of_the_dead() -> list[Path]:
    """Undo what processes had changed that there are none of any more; the notes of that."""
    undone = []
    for note in NOTES.glob(f"{NAME}*"):
        if Path("/proc", note.name.removeprefix(NAME).partition("-")[0]).exists():
            continue
        with contextlib.suppress(OSError):  # another run was first, or the device is gone
            put_back(note)
            undone.append(note)
    return undone

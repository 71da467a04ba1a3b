# SPDX-License-Identifier: Apache-2.0
"""What turns a command of root into one of a user without root, with the given capabilities and no others."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.machines.own_place import own_place

NUMBER = 65534  # nobody
RECORDING = ("bpf", "perfmon")


def as_user(*capabilities: str) -> list[str]:
    """The words before the command."""
    kept = ",".join(["-all", *(f"+{name}" for name in capabilities)])
    return [
        *("setpriv", f"--reuid={NUMBER}", f"--regid={NUMBER}", "--clear-groups"),
        *(f"--inh-caps={kept}", f"--ambient-caps={kept}", f"--bounding-set={kept}"),
    ]


@contextmanager
def directory_of_user() -> Iterator[Path]:
    """A directory that belongs to the user; those of pytest can be entered by root only."""
    with own_place(Path(tempfile.gettempdir())) as place:
        os.chown(place, NUMBER, NUMBER)
        yield place

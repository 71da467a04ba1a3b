# SPDX-License-Identifier: Apache-2.0
"""Finds the compiled programs: the recorder and the replay engine."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from characterize.errors import FlextraceError


def find_binary(name: str) -> Path:
    """Path of ``flextrace-record`` or ``flextrace-replay``.

    First hit wins: the directory named by ``FLEXTRACE_BINARIES``, ``build/`` of this checkout, ``PATH``.

    Raises
    ------
    FlextraceError
        It was not built.
    """
    places = [os.environ.get("FLEXTRACE_BINARIES"), Path(__file__).resolve().parents[2] / "build"]
    for place in places:
        if place and os.access(candidate := Path(place) / name, os.X_OK):
            return candidate
    if found := shutil.which(name):
        return Path(found)
    raise FlextraceError(
        f"{name} is not built: run 'make build' in the flextrace checkout, or set FLEXTRACE_BINARIES to its directory"
    )

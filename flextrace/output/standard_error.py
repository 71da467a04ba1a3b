# SPDX-License-Identifier: Apache-2.0
"""Turns what Python says on standard error into a stream that never fails.

What is said there is talk: where nobody takes it any more (a full disk, a pipe whose reader has gone), that is no
reason to end a measurement of minutes, whose result goes elsewhere. Nor is it to stand among the data where standard
error is closed, when ``print`` would take standard output, and the next file that is opened would get its number.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Any

NUMBER = 2
"""Of its file descriptor."""


class _Talk(io.FileIO):
    """The file descriptor behind it."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data) or len(data)  # None where it would have to wait
        except OSError:
            return len(data)


def keep_standard_error() -> None:
    """Have what is said from now on go through it.

    Not where somebody else has taken Python's stream, as tests do.
    """
    if sys.stderr is not sys.__stderr__:
        return
    if sys.stderr is None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, NUMBER)
        if nowhere != NUMBER:
            os.close(nowhere)
        os.set_inheritable(NUMBER, True)
    sys.stderr = io.TextIOWrapper(
        io.BufferedWriter(_Talk(NUMBER, "wb", closefd=False)),
        encoding=sys.stderr.encoding if sys.stderr else None,
        errors="backslashreplace",
        line_buffering=True,
    )

# SPDX-License-Identifier: Apache-2.0
"""Turns what Python prints to into a stream that says that it is standard output where it cannot be written.

The error of a full disk names no file, and could be that of any other. After it, or when the reader (head, less) has
enough, what is still printed is dropped: neither a later line nor the interpreter at its exit fails once more.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Any

from characterize.errors import FlextraceError


class _Descriptor(io.FileIO):
    """The file descriptor behind it."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            _drop_the_rest(self.fileno())
            if isinstance(error, BrokenPipeError):
                raise
            raise FlextraceError(
                f"cannot write to standard output: {error.strerror}; make room there, or send it elsewhere"
            ) from error


def name_standard_output() -> None:
    """Have what is printed from now on go through it.

    Not where somebody else has taken Python's stream, as tests do, or where it is closed.
    """
    if not isinstance(sys.stdout, io.TextIOWrapper):
        return
    # A name in a trace is bytes of any kind, and what a terminal cannot show is no reason to lose all the rest.
    errors = "backslashreplace"
    if sys.stdout is not sys.__stdout__:
        sys.stdout.reconfigure(errors=errors)
        return
    sys.stdout.flush()
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(_Descriptor(sys.stdout.fileno(), "wb", closefd=False)),
        encoding=sys.stdout.encoding,
        errors=errors,
        line_buffering=sys.stdout.line_buffering or sys.stdout.write_through,
    )


def _drop_the_rest(descriptor: int) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, descriptor)
    finally:
        os.close(nowhere)

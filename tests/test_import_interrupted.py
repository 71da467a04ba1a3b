# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C while the lines of another tool's trace are parsed."""

from __future__ import annotations

import ctypes
import io
import signal

import pytest
from pyarrow import csv

import characterize.formats.lines  # noqa: F401

pytestmark = pytest.mark.parallel


def handler() -> bytes:
    """Address of the function that the kernel calls at a SIGINT, the first field of struct sigaction."""
    action = ctypes.create_string_buffer(256)
    assert ctypes.CDLL(None, use_errno=True).sigaction(signal.SIGINT, None, action) == 0
    return action.raw[:8]


class Block(io.BytesIO):
    """Looks who would get an interrupt whenever Arrow reads."""

    def __init__(self, content: bytes):
        super().__init__(content)
        self.handlers: list[bytes] = []

    def read(self, size: int | None = -1) -> bytes:
        self.handlers.append(handler())
        return super().read(size)


def test_arrow_leaves_interrupts_to_python():
    """It loses those that come as it gives them back: 3 of 200 on a busy machine."""
    block = Block(b"1,2\n3,4\n")
    before = handler()
    assert csv.read_csv(block).num_rows == 1
    assert block.handlers
    assert set(block.handlers) == {before}

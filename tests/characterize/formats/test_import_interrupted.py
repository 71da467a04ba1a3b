# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C while the lines of another tool's trace are parsed, and a service manager that ends an import."""

from __future__ import annotations

import ctypes
import io
import os
import signal
import subprocess
import sys

import pytest
from pyarrow import csv

import characterize.formats.lines  # noqa: F401
from tests.truths.straced import ROOT

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


def test_an_import_that_is_terminated_leaves_nothing(tmp_path):
    program = """
import signal, sys
from characterize.formats.foreign import ForeignTrace
from flextrace.main import main

ForeignTrace.header = lambda _: signal.raise_signal(signal.SIGTERM)
sys.exit(main(sys.argv[1:]))
"""
    (tmp_path / "t.spc").write_text("0,303567,3584,w,0.000000\n")
    command = [sys.executable, "-c", program, "import", "t.spc", "--input-format", "spc", "-o", "t.iotrace"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "flextrace import: interrupted\n")
    assert os.listdir(tmp_path) == ["t.spc"]

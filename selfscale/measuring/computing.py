# SPDX-License-Identifier: Apache-2.0
"""Turns processors that would be idle into busy ones, as they are beside an application whose threads compute."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

# Whoever started it may end without a word.
_COMPUTE = """
import os, sys
while os.getppid() == int(sys.argv[1]):
    for _ in range(1_000_000):
        pass
"""


@contextmanager
def computing(processes: int) -> Iterator[None]:
    """So many processes that do nothing but compute, until the context ends."""
    with ExitStack() as stack:
        for _ in range(processes):
            # A group of its own: of an interrupt at the terminal each would tell a traceback.
            process = subprocess.Popen([sys.executable, "-c", _COMPUTE, str(os.getpid())], process_group=0)
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield

# SPDX-License-Identifier: Apache-2.0
"""Turns the signals that end a process into one interrupt, so that what is made is saved or taken away."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from replayer.run import ENDING, SAME_S


@contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """A service manager's SIGTERM and a closed terminal's SIGHUP end a verb as Ctrl-C does.

    What comes right behind another one is the same: it would interrupt what that one has saved and cleaned up.
    """
    last_s = -math.inf

    def interrupt(number: int, frame: Any) -> None:
        nonlocal last_s
        if time.monotonic() - last_s > SAME_S:
            last_s = time.monotonic()
            raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in ENDING}
    # Ignored by a shell that runs it in the background, by nohup.
    before = {number: handler for number, handler in before.items() if handler != signal.SIG_IGN}
    for number in before:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

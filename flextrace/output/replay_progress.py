# SPDX-License-Identifier: Apache-2.0
"""Turns what a replay is at into a line that follows it on a terminal, or one every ten seconds; short ones are silent.

A replay is measured: so nothing is drawn, and a line a second is all that a terminal gets of it.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Self

from characterize.units import format_duration
from flextrace.output.talk import say

INTERVAL_MS = 1000.0
"""Between two counts of the engine, whose main thread wakes up as often anyway."""
FIRST_S, TERMINAL_S, LINE_S = 3.0, 1.0, 10.0
"""Until something is said, and between two lines."""
ERASE = "\r\033[K"


class ReplayProgress:
    """Tells of a replay on stderr while its ``with`` block runs, or until it is closed.

    Parameters
    ----------
    max_seconds : float, optional
        The replay ends after this time at the latest, seconds.
    loop : bool
        It ends after nothing else.
    """

    def __init__(self, max_seconds: float | None = None, *, loop: bool = False) -> None:
        self._max_seconds, self._loop = max_seconds, loop
        self._terminal = sys.stderr.isatty()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._tell, daemon=True)
        self._what, self._begin_s, self._done = "starting", time.monotonic(), 0
        self._line: Mapping[str, Any] | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Say nothing more; what is said next stands where the line was."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def step(self, what: str) -> None:
        """Something else begins."""
        self._what, self._begin_s, self._done, self._line = what, time.monotonic(), 0, None

    def on_interval(self, line: Mapping[str, Any]) -> None:
        """The replay runs: of a line of `replayer.run.replay`."""
        self._done += line["requests"]
        self._line = line

    def text(self) -> str:
        """What is being done, and how long that takes."""
        line = self._line
        if line is None:
            return f"{self._what}: {format_duration(time.monotonic() - self._begin_s)}"
        elapsed_s, of_pass = line["t_s"], line["requests_of_pass"]
        share = self._done / of_pass if of_pass and not self._loop else 0.0
        left_s = [elapsed_s * (1 - share) / share] if share else []
        left_s += [max(0.0, self._max_seconds - elapsed_s)] if self._max_seconds else []
        done = f"{share:.0%} of {of_pass} requests" if share else f"{self._done} requests"
        eta = f", ETA {format_duration(min(left_s))}" if left_s else ""
        return f"replaying: {format_duration(elapsed_s)}, {done}{eta}"

    def _tell(self) -> None:
        """The thread: until the end, a line now and then."""
        wait_s, drawn = FIRST_S if self._terminal else LINE_S, False
        while not self._ended.wait(wait_s):
            if self._terminal:
                print(f"{ERASE}{self.text()[: _room()]}", end="", file=sys.stderr, flush=True)
                wait_s, drawn = TERMINAL_S, True
            else:
                say("replay", self.text())
        if drawn:
            print(ERASE, end="", file=sys.stderr, flush=True)


def _room() -> int | None:
    """Columns of the terminal that a line may fill, None where it does not say how many it has.

    A line that wraps is not erased as a whole: what it leaves behind scrolls the terminal, every second. One that fills
    the last column may count as wrapped.
    """
    with suppress(OSError):
        if columns := os.get_terminal_size(sys.stderr.fileno()).columns:
            return columns - 1
    return None

# SPDX-License-Identifier: Apache-2.0
"""The program ``flextrace``, also as ``python -m flextrace``: how it begins and ends where it is interrupted."""

from __future__ import annotations

import atexit
import os
import signal
import sys

from flextrace import EXIT_INTERRUPTED


def main() -> int:
    """Run one verb; what interrupts its imports or its last moments makes no traceback, nor a death of a signal.

    While the verb runs there are handlers of its own, by which what is made is saved or taken away.
    """
    if callable(signal.getsignal(signal.SIGINT)):  # a shell may have it ignored
        signal.signal(signal.SIGINT, lambda *_: os._exit(EXIT_INTERRUPTED))
        # Behind all that is registered later. Then Python takes its handlers back, and would die of what it still gets.
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
    from flextrace.main import main as run  # noqa: PLC0415 (which takes a moment)

    return run()


if __name__ == "__main__":
    sys.exit(main())

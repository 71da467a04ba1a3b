# SPDX-License-Identifier: Apache-2.0
"""Turns what a verb says beside its result into lines on standard error that begin with its name."""

from __future__ import annotations

import sys

from characterize.printable import printable


def say(verb: str | None, text: str) -> None:
    """Say something; names of files and programs may be in it, of any bytes, which are not to command the terminal.

    Parameters
    ----------
    verb : str or None
        None: what was asked for names none.
    text : str
        May have several lines.
    """
    name = f"flextrace {verb}" if verb else "flextrace"
    print(f"{name}: " + "\n".join(map(printable, text.split("\n"))), file=sys.stderr)

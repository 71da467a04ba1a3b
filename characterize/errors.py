# SPDX-License-Identifier: Apache-2.0
"""The one exception of flextrace: what failed, on which object, why, what to do; and what to do about other errors."""

from __future__ import annotations

import errno
import os
from pathlib import Path


class FlextraceError(Exception):
    """An error to show to the user as one message.

    Parameters
    ----------
    message : str
        What failed, on which object, why, and the remedy, in one or two sentences without a final newline.
    exit_code : int
        1 failed, 2 usage, 3 result not trustworthy (design.md section 7).
    """

    def __init__(self, message: str, exit_code: int = 1):
        super().__init__(message)
        self.exit_code = exit_code


def remedy_of(error: OSError) -> str:
    """What to do, to stand behind what could not be read or written: to make room, or to be let in; else nothing."""
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return "; make room there"
    closed = _closed_directory(error) if error.errno == errno.EACCES else None
    return f": directory {closed} may not be entered; run as its owner or as root, or have it opened" if closed else ""


def _closed_directory(error: OSError) -> Path | None:
    """The first directory on the way to what an error names that may not be searched."""
    if not isinstance(error.filename, str | bytes):
        return None
    path = Path(os.fsdecode(error.filename)).absolute()
    way = reversed(path.parents)
    return next((place for place in way if not os.access(place, os.X_OK, effective_ids=True)), None)


def is_interrupt(error: BaseException) -> bool:
    """Whether an interruption ended the work: compiled functions that return make SystemErrors of it, in a row."""
    while isinstance(error, SystemError) and error.__cause__:
        error = error.__cause__
    return isinstance(error, KeyboardInterrupt)

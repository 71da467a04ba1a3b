# SPDX-License-Identifier: Apache-2.0
"""The one exception of flextrace: what failed, on which object, why, what to do."""

from __future__ import annotations

import errno


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


def room_remedy(error: OSError) -> str:
    """What to do, to stand behind what could not be written: where there is no room, to make some; else nothing."""
    return "; make room there" if error.errno in {errno.ENOSPC, errno.EDQUOT} else ""
